#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/scheduler/kv_tables.hpp"
#include "actors/scheduler/scheduling_policy.hpp"
#include "actors/step/step_plan.hpp"
#include "models/sampler/sampling_params.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// How next tokens are guessed, so that one step may bring several.
struct SpeculationConfig {
  enum class Method : std::uint8_t { none, prompt_lookup, draft_model };
  Method method = Method::none;
  std::int32_t tokens = 3;         ///< guessed at most in a step, 1..16
  std::int32_t longest_match = 3;  ///< of prompt_lookup: tokens that must have occurred before

  template <class Archive>
  void fields(Archive& archive) {
    archive(method, tokens, longest_match);
  }
};

/// The bounds that a scheduler plans within; all numbers are at least 1.
struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;             ///< sequences that hold blocks at one time
  std::int32_t max_num_batched_tokens = 2048;  ///< tokens in a step
  std::int32_t max_model_len = 2048;           ///< prompt and generated tokens of a request
  std::int32_t block_size = 16;                ///< tokens in a block
  std::int32_t kv_cache_blocks = 1024;         ///< the least over the ranks
  std::int32_t max_steps_in_flight = 1;        ///< plans made before the first of them is applied
  /// A plan takes at most one part in so many of the sequences and (with chunked prefill) of the
  /// tokens that there are, so that as many plans can be in flight at once: the stages of a
  /// pipeline. Plans beyond it are made ahead of results.
  std::int32_t micro_batches = 1;
  /// False: no prompt is cut; the budget must then hold max_model_len.
  bool chunked_prefill = true;
  bool prefix_caching = false;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  SpeculationConfig speculation = {};
  /// Of each cache group of the model: how many tokens a position sees; 0: all.
  std::vector<std::int32_t> windows = {0};

  template <class Archive>
  void fields(Archive& archive) {
    archive(max_num_seqs, max_num_batched_tokens, max_model_len, block_size, kv_cache_blocks,
            max_steps_in_flight, micro_batches, chunked_prefill, prefix_caching, policy,
            speculation, windows);
  }
};

/// A request as the scheduler takes it: tokenised, its sampling complete.
struct SequenceSpec {
  std::uint64_t request = 0;  ///< the caller's name for it, unique among live requests
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int32_t priority = 0;                     ///< for SchedulingPolicy::priority
  std::optional<std::int64_t> deadline_us = {};  ///< for SchedulingPolicy::deadline
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

/// What a scheduler has done since it was made.
struct SchedulerCounters {
  std::uint64_t prompt_tokens = 0;      ///< of prompts in plans; again after a preemption
  std::uint64_t recomputed_tokens = 0;  ///< of these, that had been in plans before
  std::uint64_t looked_up_tokens = 0;   ///< of prompts looked for in the prefix cache, each once
  std::uint64_t prefix_tokens = 0;  ///< of requests at their first admission, found in the cache
  std::uint64_t preemptions = 0;    ///< sequences that gave their blocks back to be computed again
  std::uint64_t most_preemptions = 0;  ///< of one sequence
  std::uint64_t drafts = 0;            ///< guessed tokens in plans
  std::uint64_t accepted_drafts = 0;

  void add(const SchedulerCounters& other) {
    prompt_tokens += other.prompt_tokens;
    recomputed_tokens += other.recomputed_tokens;
    looked_up_tokens += other.looked_up_tokens;
    prefix_tokens += other.prefix_tokens;
    preemptions += other.preemptions;
    most_preemptions = std::max(most_preemptions, other.most_preemptions);
    drafts += other.drafts;
    accepted_drafts += other.accepted_drafts;
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(prompt_tokens, recomputed_tokens, looked_up_tokens, prefix_tokens, preemptions,
            most_preemptions, drafts, accepted_drafts);
  }
};

/// Plans the steps of one replica and owns its blocks: continuous batching over a paged KV cache.
///
/// There are no prefill and decode phases. A sequence knows some tokens (its prompt and what was
/// generated) and has computed the KV of some of them; each step lets it catch up by what the
/// budget allows, and samples once it has caught up. Running sequences are served first, then
/// waiting ones, both in the order of the policy; a request that finds too few blocks holds back
/// those behind it. Blocks are taken as positions are planned. When none is free, the last running
/// sequence gives all of its back and waits again with the tokens that it has; what it had computed
/// may still be found in the prefix cache.
///
/// Up to `max_steps_in_flight` plans may be made before the first is applied. A sequence joins a
/// further plan with the tokens that are known and not planned yet (the next chunk of its prompt),
/// or with the one token that an earlier plan in flight samples, `micro_batches` plans later: the
/// workers know it by then. If that token ends the sequence, what was planned after it is dropped.
/// Results come in the order of plans. What ended while a plan still names it keeps blocks and id
/// until that plan is applied.
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

  /// Ends all requests that were never admitted, without updates; returns their names in order.
  std::vector<std::uint64_t> abort_waiting();

  /// The next step, or nothing if no token can be planned now: nothing is live, everything waits
  /// for a result, or the limit of plans in flight is reached. `now_us`, on the clock of the
  /// requests' deadlines, counts under SchedulingPolicy::deadline only.
  std::optional<StepPlan> plan(std::int64_t now_us = 0);

  /// A step of no tokens, for a replica that must step because others do (StepDomain). Counts as a
  /// plan in flight.
  StepPlan plan_empty();

  /// Takes the result of the oldest plan in flight and says what it brought, in plan order. Errors:
  /// internal if it is not that plan's result (step, epoch, a sequence it does not name, a sampled
  /// sequence without a token, more tokens than drafts and one); nothing is changed then.
  Result<std::vector<SequenceUpdate>> apply(StepResult result);

  /// After workers died: forgets plans in flight, blocks and ids, and lets every admitted request
  /// wait again with the tokens that it has. The next plans are of `epoch` and start every sequence
  /// anew. Scores of a prompt that was not through come again.
  void restart(std::uint32_t epoch);

  std::size_t live() const { return requests_.size(); }        ///< added and not ended
  std::size_t waiting() const { return waiting_.size(); }      ///< of these, without blocks
  std::size_t running() const { return running_.size(); }      ///< of these, with blocks
  std::size_t in_flight() const { return in_flight_.size(); }  ///< plans not applied yet
  const BlockPool& blocks() const { return kv_.pool(); }
  const SchedulerCounters& counters() const { return counters_; }

  /// Checks everything that must hold between two calls (block and id ownership, counts). For
  /// tests. Errors: internal with the first contradiction.
  Result<void> audit() const;

 private:
  /// A request and how far it has come. It moves from `waiting_` to a slot and back.
  struct Sequence {
    std::uint64_t request = 0;
    std::vector<std::int32_t> tokens;  ///< prompt, then what was generated
    std::int32_t prompt_tokens = 0;
    SamplingParams sampling;
    std::int32_t max_generated = 0;  ///< max_tokens, cut to max_model_len
    SchedulingRank rank;
    bool admitted_before = false;
    std::uint64_t preemptions = 0;
    std::int32_t prompt_planned = 0;     ///< of the prompt, ever in plans or found in the cache
    std::int32_t scheduled = 0;          ///< positions in plans made, or found in the cache
    std::int32_t computed = 0;           ///< of these, in plans applied, or found
    std::int32_t sampled_in_flight = 0;  ///< plans not applied that sample it
    std::int32_t plans_in_flight = 0;
    std::uint64_t last_step = 0;       ///< the last that it was planned in
    std::vector<std::int32_t> drafts;  ///< a draft model's guesses for its next plan
    bool ended = false;                ///< kept until no plan in flight names it
    bool leaving = false;              ///< gives its blocks back as soon as no plan names it
    SequenceBlocks blocks;

    std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
    std::int32_t generated() const { return known() - prompt_tokens; }
  };

  /// What `apply` must know of a plan.
  struct PlannedShare {
    SequenceId id = 0;
    std::int32_t tokens = 0;
    bool sample = false;
    std::int32_t drafts = 0;
  };
  struct PlannedStep {
    std::uint64_t step = 0;
    std::vector<PlannedShare> shares;
  };
  /// A plan being made, and what it may still take.
  struct OpenPlan {
    StepPlan plan;
    PlannedStep planned;
    std::int32_t tokens = 0;          ///< that it may still take
    std::int64_t started_tokens = 0;  ///< known ones of the sequences that it starts
    std::size_t sequences = 0;        ///< in it at most, the ones there already included
    bool is_full() const { return tokens == 0 || plan.steps.size() >= sequences; }
  };
  /// Where a live request is.
  struct Place {
    std::optional<SequenceId> slot;  ///< none: it waits
    SchedulingRank rank;
  };

  explicit Scheduler(const SchedulerConfig& config);

  std::int32_t token_budget() const;
  StepPlan number(StepPlan plan, PlannedStep planned);
  void plan_running(OpenPlan& open);
  void admit_waiting(OpenPlan& open, std::int64_t now_us);
  bool has_room_for(const Sequence& next) const;
  void start(OpenPlan& open, Sequence next, std::int32_t tokens);
  void put_late_ones_back(std::int64_t now_us);
  std::int32_t share_of(const Sequence& sequence, std::int32_t budget) const;
  bool may_run_ahead(const Sequence& sequence) const;
  bool make_room(SequenceId id, std::int32_t end);
  bool grow_for_guesses(std::int32_t end, SequenceBlocks& blocks);
  std::vector<std::int32_t> drafts_for(Sequence& sequence, std::int32_t budget);
  void count_prompt(Sequence& sequence, std::int32_t begin);
  void plan_share(SequenceId id, std::int32_t tokens, std::vector<std::int32_t> drafts,
                  OpenPlan& open);

  Result<void> check_result(const PlannedStep& planned, const StepResult& result);
  Result<void> check_row(const PlannedShare& share, const StepResult& result) const;
  void take_result(const PlannedShare& share, SequenceResult& result, SequenceUpdate& update);
  void take_tokens(const PlannedShare& share, SequenceResult& result, SequenceUpdate& update);
  void evict(SequenceId id);
  void wait_again(SequenceId id);
  void end(SequenceId id);
  void free_slot(SequenceId id);
  void drop_from_running();

  SchedulerConfig config_;
  KvTables kv_;
  std::map<SchedulingRank, Sequence> waiting_;
  std::vector<Sequence> slots_;       ///< [max_num_seqs], indexed by SequenceId
  std::vector<SequenceId> free_ids_;  ///< the back is taken first
  std::vector<SequenceId> running_;   ///< in the order of their ranks; without ended ones
  std::size_t leaving_ = 0;           ///< of the running ones
  std::vector<SequenceId> released_;  ///< to be told to the workers by the next plan
  std::unordered_map<std::uint64_t, Place> requests_;  ///< live
  std::deque<PlannedStep> in_flight_;                  ///< oldest first
  std::vector<std::int32_t> result_of_;  ///< [max_num_seqs]; scratch of `apply`: -1 outside it
  std::uint64_t next_step_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint32_t epoch_ = 0;
  double us_per_step_ = 0.0;  ///< a running mean of what the workers report
  SchedulerCounters counters_;
};

}  // namespace troupe
