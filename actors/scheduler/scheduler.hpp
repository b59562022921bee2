#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/scheduler/block_pool.hpp"
#include "actors/step/step_plan.hpp"
#include "models/sampler/sampling_params.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The bounds that a scheduler plans within; all are at least 1.
struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;             ///< sequences that hold blocks at one time
  std::int32_t max_num_batched_tokens = 2048;  ///< tokens in a step
  std::int32_t max_model_len = 2048;           ///< prompt and generated tokens of a request
  std::int32_t block_size = 16;                ///< tokens in a block
  std::int32_t kv_cache_blocks = 1024;         ///< the least over the ranks
  std::int32_t max_steps_in_flight = 1;        ///< plans made before the first of them is applied
  /// A plan takes at most one part in so many of the sequences and (with chunked prefill) of the
  /// tokens that there are, so that as many plans can be in flight at once: the stages of a
  /// pipeline. Apart from max_steps_in_flight, for plans may also be made ahead on one stage.
  std::int32_t micro_batches = 1;
  /// False: no prompt is cut; the budget must then hold max_model_len.
  bool chunked_prefill = true;
};

/// A request as the scheduler takes it: tokenised, its sampling complete.
struct SequenceSpec {
  std::uint64_t request = 0;  ///< the caller's name for it, unique among live requests
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
};

/// Why a request ended.
enum class SequenceEnd : std::uint8_t {
  stop,    ///< one of its stop tokens came; it is the last of its tokens
  length,  ///< max_tokens are generated (0: the prompt is scored), or max_model_len is reached
  failed,  ///< a worker found its logits not finite
};

/// What one step brought to one request.
struct SequenceUpdate {
  std::uint64_t request = 0;
  std::vector<std::int32_t> tokens;  ///< new ones, in order; none after a stop token or the limit
  std::vector<TokenLogprobs> logprobs;  ///< one per new token if asked for
  std::int32_t prompt_begin = 0;        ///< position of the first token of `prompt_logprobs`
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<SequenceEnd> end;  ///< set in the last update of a request
};

/// Plans the steps of one replica and owns its blocks: continuous batching over a paged KV cache.
///
/// There are no prefill and decode phases. A sequence knows some tokens (its prompt and what was
/// generated) and has computed the KV of some of them; each step lets it catch up by what the
/// budget allows, and samples once it has caught up. Running sequences are served first, in the
/// order of admission, then waiting ones first come, first served: a request that finds too few
/// blocks holds back those behind it, so none starves. A request is admitted with blocks for its
/// prompt and all the tokens that it may generate, hence nothing admitted ever runs out of them.
///
/// Up to `max_steps_in_flight` plans may be made before the first is applied. A sequence joins
/// a further plan with the tokens that are known and not planned yet (the next chunk of its
/// prompt); one whose next token is still being sampled sits out. Results come in the order of
/// plans. What ended while a plan still names it keeps blocks and id until that plan is applied.
///
/// A pure state machine: no clock, no I/O, no randomness; the same calls give the same plans. One
/// thread at a time.
class Scheduler {
 public:
  /// Errors: invalid_argument if a bound is below 1, or without chunked prefill if the budget is
  /// less than max_model_len.
  static Result<Scheduler> make(const SchedulerConfig& config);

  /// Appends a request to the waiting ones. Errors, each with the reason: invalid_argument for an
  /// empty prompt, a negative token or max_tokens, and a prompt that leaves no room in
  /// max_model_len or, with its max_tokens, needs more blocks than there are; already_exists if a
  /// live request has the name.
  Result<void> add(SequenceSpec spec);

  /// Ends a request without a further update. False if there is none (it may just have ended).
  bool abort(std::uint64_t request);

  /// Ends all requests that hold no blocks yet, without updates; returns their names in order.
  std::vector<std::uint64_t> abort_waiting();

  /// The next step, or nothing if no token can be planned now: nothing is live, everything waits
  /// for a result, or the limit of plans in flight is reached.
  std::optional<StepPlan> plan();

  /// A step of no tokens, for a replica that must step because others do (StepDomain). Counts as a
  /// plan in flight.
  StepPlan plan_empty();

  /// Takes the result of the oldest plan in flight and says what it brought, in plan order. Errors:
  /// internal if it is not that plan's result (step, epoch, a sequence it does not name, a sampled
  /// sequence without an answer); nothing is changed then. A sampled sequence that is answered with
  /// no token has its last position planned again.
  Result<std::vector<SequenceUpdate>> apply(StepResult result);

  /// After workers died: forgets plans in flight, blocks and ids, and puts every admitted request
  /// back in front of the waiting ones with the tokens that it has. The next plans are of `epoch`
  /// and start every sequence anew. Scores of a prompt that was not through come again.
  void restart(std::uint32_t epoch);

  std::size_t live() const { return requests_.size(); }        ///< added and not ended
  std::size_t waiting() const { return waiting_.size(); }      ///< of these, without blocks
  std::size_t running() const { return running_.size(); }      ///< of these, with blocks
  std::size_t in_flight() const { return in_flight_.size(); }  ///< plans not applied yet
  const BlockPool& blocks() const { return pool_; }

  /// Checks everything that must hold between two calls (block and id ownership, counts). For
  /// tests. Errors: internal with the first contradiction.
  Result<void> audit() const;

 private:
  /// A request and how far it has come. It moves from `waiting_` to a slot and back.
  struct Sequence {
    std::uint64_t request = 0;
    std::vector<std::int32_t> prompt;
    std::vector<std::int32_t> generated;
    SamplingParams sampling;
    std::int32_t max_generated = 0;  ///< max_tokens, cut to max_model_len
    std::int32_t scheduled = 0;      ///< positions in plans made
    std::int32_t computed = 0;       ///< of these, in plans applied
    std::int32_t plans_in_flight = 0;
    bool ended = false;          ///< kept until no plan in flight names it
    std::vector<BlockId> table;  ///< its blocks, in the order of positions

    std::int32_t known() const {
      return static_cast<std::int32_t>(prompt.size() + generated.size());
    }
  };

  /// What `apply` must know of a plan.
  struct PlannedShare {
    SequenceId id = 0;
    std::int32_t tokens = 0;
    bool sample = false;
  };
  struct PlannedStep {
    std::uint64_t step = 0;
    std::vector<PlannedShare> shares;
  };

  explicit Scheduler(const SchedulerConfig& config);

  std::int32_t blocks_needed(const Sequence& sequence) const;
  /// What a plan may still take.
  struct Budget {
    std::int32_t tokens = 0;
    std::size_t sequences = 0;  ///< in the plan at most, the ones there already included
  };

  std::int32_t token_budget() const;
  StepPlan number(StepPlan plan, PlannedStep planned);
  void plan_running(StepPlan& plan, PlannedStep& planned, Budget& budget);
  void admit_waiting(StepPlan& plan, PlannedStep& planned, Budget& budget);
  std::int32_t share_of(const Sequence& sequence, std::int32_t budget) const;
  void plan_share(SequenceId id, std::int32_t tokens, StepPlan& plan, PlannedStep& planned);

  Result<void> check_result(const PlannedStep& planned, const StepResult& result);
  void take_result(const PlannedShare& share, SequenceResult& result, SequenceUpdate& update);
  void take_tokens(Sequence& sequence, SequenceResult& result, SequenceUpdate& update);
  void end(SequenceId id);
  void free_slot(SequenceId id);
  void drop_ended_from_running();

  SchedulerConfig config_;
  BlockPool pool_;
  std::deque<Sequence> waiting_;      ///< first come first
  std::vector<Sequence> slots_;       ///< [max_num_seqs], indexed by SequenceId
  std::vector<SequenceId> free_ids_;  ///< the back is taken first
  std::vector<SequenceId> running_;   ///< in the order of admission; without ended ones
  std::vector<SequenceId> released_;  ///< to be told to the workers by the next plan
  std::unordered_map<std::uint64_t, std::optional<SequenceId>> requests_;  ///< live; id if admitted
  std::deque<PlannedStep> in_flight_;                                      ///< oldest first
  std::vector<std::int32_t> result_of_;  ///< [max_num_seqs]; scratch of `apply`: -1 outside it
  std::uint64_t next_step_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace troupe
