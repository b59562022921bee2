#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/scheduler/kv_tables.hpp"
#include "actors/scheduler/lost_work.hpp"
#include "actors/scheduler/prompt_lookup.hpp"
#include "actors/scheduler/scheduler_config.hpp"
#include "actors/scheduler/scheduler_counters.hpp"
#include "actors/scheduler/scheduling_policy.hpp"
#include "actors/scheduler/sequence_group.hpp"
#include "actors/scheduler/swap_space.hpp"
#include "actors/scheduler/under_way.hpp"
#include "actors/step/step_plan.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Plans the steps of one replica and owns its blocks: continuous batching over a paged KV cache.
///
/// There are no prefill and decode phases. A sequence knows some tokens (its prompt and what was
/// generated) and has computed the KV of some of them; each step lets it catch up by what the
/// budget allows, and samples once it has caught up. Running sequences are served first, then
/// waiting ones, both in the order of the policy; a request that finds too few blocks holds back
/// those behind it. Blocks are allocated as positions are planned. When none is free, the last
/// running sequence is preempted: it releases all its blocks and waits again with the tokens that
/// it has; its KV may still be found in the prefix cache.
///
/// With `swap_blocks`, a preempted sequence has its KV copied to host memory and keeps its id,
/// unless host memory is full or it shares most of its blocks: then it is recomputed, too. A
/// swapped block is free only with the next plan, so sequences are evicted some plans ahead. A
/// swapped sequence comes back in the order of its rank, before waiting ones behind it, as soon as
/// there is room for it and for the running sequences to grow for a while. When nothing waits, at
/// the end of a batch, the sequence with the least left to generate is evicted for the one with the
/// most, and they take turns, so that all end together and none runs long alone.
///
/// Up to `max_steps_in_flight` plans may be made before the first is applied. A sequence joins a
/// further plan with the tokens that are known and not planned yet (the next chunk of its prompt),
/// or with the one token that an earlier plan in flight samples, `micro_batches` plans later: the
/// workers know it by then. If that token ends the sequence, what was planned after it is dropped.
/// Results come in the order of plans. An ended sequence that a plan still names keeps blocks and
/// id until that plan is applied.
///
/// A request may have several sequences, its choices or the beams of a search, which share prompt
/// and parameters. Choices are admitted one after the other as there is room, and cost nothing
/// before. A search is admitted when there are ids for all its beams. It keeps these ids, its rank
/// and the blocks of its last step until it ends, so its steps follow each other whatever waits.
///
/// A pure state machine: no clock, no I/O, no randomness; the same calls give the same plans. One
/// thread at a time.
class Scheduler {
 public:
  /// Errors: invalid_argument if a bound is out of range, if without chunked prefill the budget is
  /// less than max_model_len, and for swap_blocks with a draft model, whose cache is not swapped.
  static Result<Scheduler> make(const SchedulerConfig& config);

  /// Appends a request to the waiting ones. One that has begun elsewhere counts as admitted here, a
  /// search if there are ids for its beams. Errors, each with the reason: invalid_argument for an
  /// empty prompt, a negative token or max_tokens, and a prompt that leaves no room in
  /// max_model_len or, with its max_tokens, needs more blocks than there are; already_exists if a
  /// live request has the name.
  Result<void> add(SequenceGroupSpec spec);

  /// Begins the next step of a search whose sequences have all ended: a beam for each of `beams`,
  /// the tokens after the prompt. Beams are numbered on from the last ones. Without beams the
  /// search is over. Errors: not_found if no such search waits for this.
  Result<void> advance(std::uint64_t request, std::vector<std::vector<std::int32_t>> beams);

  /// Ends a request without a further update. False if it does not exist (it may have just ended).
  bool abort(std::uint64_t request);
  /// Ends one sequence that has begun; ending the last of its choices ends the request.
  bool abort(std::uint64_t request, std::int32_t sequence);

  /// Ends all requests of which no sequence was ever admitted, without updates; returns their ids
  /// in order.
  std::vector<std::uint64_t> abort_waiting();

  /// Returns the next step, or nothing if no token can be planned now: nothing is live, everything
  /// waits for a result, or the limit of plans in flight is reached. A step with swaps alone is
  /// returned only if nothing else can be done before them. `now_us`, on the clock of the requests'
  /// deadlines, matters under SchedulingPolicy::deadline only.
  std::optional<StepPlan> plan(std::int64_t now_us = 0);

  /// Returns a step without tokens, for a replica that must step because others do (StepDomain); it
  /// may carry swaps. Counts as a plan in flight.
  StepPlan plan_empty();

  /// Takes the result of the oldest plan in flight and returns its updates in plan order. Errors:
  /// internal if it is not that plan's result (step, epoch, a sequence it does not name, a sampled
  /// sequence without a token, more tokens than drafts and one); nothing is changed then.
  Result<std::vector<SequenceUpdate>> apply(StepResult result);

  /// After workers died: forgets plans in flight, blocks and ids, and puts every admitted request
  /// back to waiting with the tokens that it has. The next plans are of `epoch` and start every
  /// sequence anew. Unfinished prompt scores are sent again from the beginning. Returns what is
  /// computed again.
  LostWork restart(std::uint32_t epoch);

  /// The requests of living sequences in plans in flight, in the order of their ids.
  std::vector<UnderWay> under_way() const;

  std::size_t live() const { return live_; }                   ///< sequences of requests, not ended
  std::size_t waiting() const { return live() - running(); }   ///< sequences without blocks
  std::size_t running() const { return running_.size(); }      ///< sequences with blocks
  std::size_t in_flight() const { return in_flight_.size(); }  ///< plans not applied yet
  const BlockPool& blocks() const { return kv_.pool(); }
  const SchedulerCounters& counters() const { return counters_; }

  /// Checks all invariants between two calls (block and id ownership, counts). For tests. Errors:
  /// internal with the first contradiction.
  Result<void> audit() const;

 private:
  /// A sequence and its progress. It moves from `waiting_` to a slot and back; in a slot it is in
  /// `running_` or `swaps_`.
  struct Sequence {
    SequenceGroup* group = nullptr;  ///< null after its end
    std::int32_t number = 0;         ///< within its request
    /// Prompt, then generated tokens; for a choice, empty until it is admitted.
    std::vector<std::int32_t> tokens;
    std::int32_t prompt_tokens = 0;
    std::int32_t max_generated = 0;  ///< cut to max_model_len
    SchedulingRank rank;
    bool admitted_before = false;
    std::uint64_t preemptions = 0;
    std::int32_t prompt_planned = 0;  ///< prompt tokens ever planned or found in the cache
    std::int32_t scheduled = 0;       ///< positions planned, or found in the cache
    std::int32_t computed = 0;        ///< positions in applied plans, or found in the cache
    std::int32_t dropped = 0;  ///< of the planned positions, how many the KvPolicy has dropped
    std::int32_t sampled_in_flight = 0;  ///< plans not applied that sample it
    std::int32_t plans_in_flight = 0;
    std::uint64_t last_step = 0;         ///< the last step that it was planned in
    std::vector<std::int32_t> drafts;    ///< a draft model's guesses for its next plan
    std::optional<PromptLookup> lookup;  ///< under prompt_lookup, while it has a slot
    bool ended = false;                  ///< kept until no plan in flight names it
    bool evicting = false;               ///< to be evicted as soon as no plan names it
    SequenceBlocks blocks;

    std::span<const std::int32_t> known_tokens() const {
      return tokens.empty() ? std::span<const std::int32_t>(group->prompt) : tokens;
    }
    std::int32_t known() const { return static_cast<std::int32_t>(known_tokens().size()); }
    std::int32_t generated() const { return known() - prompt_tokens; }
    std::int32_t remaining() const { return max_generated - generated(); }
  };

  /// One sequence's part of a plan, kept for `apply`.
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
  /// A plan being made, and what it still has room for.
  struct OpenPlan {
    StepPlan plan;
    PlannedStep planned;
    std::int32_t tokens = 0;          ///< tokens that it still has room for
    std::int64_t started_tokens = 0;  ///< known tokens of the sequences that it starts
    std::size_t sequences = 0;        ///< the most sequences in it, including those already there
    bool is_full() const { return tokens == 0 || plan.steps.size() >= sequences; }
  };
  explicit Scheduler(const SchedulerConfig& config);

  std::int32_t token_budget() const;
  StepPlan number(StepPlan plan, PlannedStep planned);
  bool nothing_is_computed() const;
  void plan_running(OpenPlan& open);
  void admit_waiting(OpenPlan& open);
  bool has_room_for(const Sequence& next) const;
  bool goes_on(const Sequence& next) const;
  bool scores_prompt(const Sequence& sequence) const;
  bool has_id_for(const Sequence& next) const;
  bool make_room_for(const Sequence& next);
  Sequence* next_to_admit();
  void start(OpenPlan& open, Sequence next, std::int32_t tokens);
  void insert_running(SequenceId id);
  void put_late_ones_back(std::int64_t now_us);
  /// Returns how many of the positions before `position` the cache does not have at its row.
  std::int32_t dropped_before(const Sequence& sequence, std::int32_t position) const {
    return config_.kv_policy.dropped_before(position, sequence.prompt_tokens);
  }
  std::int32_t share_of(const Sequence& sequence, std::int32_t budget) const;
  bool may_run_ahead(const Sequence& sequence) const;
  bool make_room(SequenceId id, std::int32_t end);
  bool evict_last();

  void set_unmade(SequenceGroup& group, std::int32_t unmade);
  void resume(SequenceGroup& group, SequenceGroupSpec spec);
  void make_member(SequenceGroup& group, std::vector<std::int32_t> tokens);
  SequenceGroup::Member* find_member(SequenceGroup& group, std::int32_t sequence);
  void forget_member(Sequence& sequence);
  void erase_group(SequenceGroup& group);
  std::int32_t ids_of_search(const SequenceGroup& group) const;
  void reserve_ids(SequenceGroup& group);
  void release_parents(SequenceGroup& group);
  bool release_kept(const SchedulingRank& behind);
  bool grow_for_guesses(std::int32_t end, SequenceBlocks& blocks);
  std::vector<std::int32_t> drafts_for(Sequence& sequence, std::int32_t budget);
  void count_prompt(Sequence& sequence, std::int32_t begin);
  void plan_share(SequenceId id, std::int32_t tokens, std::vector<std::int32_t> drafts,
                  OpenPlan& open);

  Result<void> check_result(const PlannedStep& planned, const StepResult& result);
  Result<void> check_row(const PlannedShare& share, const StepResult& result) const;
  void take_result(const PlannedShare& share, SequenceResult& result, SequenceUpdate& update);
  void take_tokens(const PlannedShare& share, SequenceResult& result, SequenceUpdate& update);
  void preempt(SequenceId id);
  void wait_again(SequenceId id);

  bool knows(const SequenceGroup& group, const Sequence& sequence,
             std::optional<SequenceId> slot) const;
  Result<void> audit_searches(std::vector<std::int32_t>& holders) const;
  Result<void> audit_swaps() const;
  bool swaps() const { return config_.swap_blocks > 0; }
  bool swap_out(SequenceId id);
  void make_room_ahead();
  void rotate_swapped(std::int32_t growth, std::int32_t soon_free);
  void evict(SequenceId id);
  bool can_swap(SequenceId id) const;
  void bring_back(OpenPlan& open);
  bool may_come_back(SequenceId id) const;
  std::optional<SequenceId> next_to_leave() const;
  std::vector<SequenceId> next_to_come_back(std::size_t most) const;
  bool somebody_comes_back_before(const SchedulingRank& rank) const;
  std::int32_t growth_ahead(std::int32_t plans) const;
  std::int32_t growth_of(const Sequence& sequence, std::int32_t plans) const;
  std::int32_t plans_to_make_room() const;
  std::int32_t plans_to_stay() const;
  void end(SequenceId id);
  void free_slot(SequenceId id);
  void drop_from_running();

  SchedulerConfig config_;
  KvTables kv_;
  std::map<SchedulingRank, Sequence> waiting_;
  std::vector<Sequence> slots_;       ///< [max_num_seqs], indexed by SequenceId
  std::vector<SequenceId> free_ids_;  ///< the back is taken first
  std::vector<SequenceId> running_;   ///< in the order of rank; without ended ones
  std::size_t evicting_ = 0;          ///< number of running ones
  SwapSpace swaps_;
  std::vector<SequenceId> released_;  ///< for the next plan to report to the workers
  std::unordered_map<std::uint64_t, SequenceGroup> requests_;  ///< live
  std::size_t live_ = 0;                                       ///< their sequences
  std::size_t unmade_ = 0;                                     ///< sum of SequenceGroup::unmade
  std::vector<SequenceGroup*> searches_;                       ///< admitted searches
  std::int32_t reserved_ids_ = 0;                              ///< by all searches
  std::deque<PlannedStep> in_flight_;                          ///< oldest first
  std::vector<std::int32_t> result_of_;  ///< [max_num_seqs]; scratch of `apply`: -1 outside it
  std::uint64_t next_step_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint32_t epoch_ = 0;
  double us_per_step_ = 0.0;  ///< running mean of what the workers report
  SchedulerCounters counters_;
};

}  // namespace troupe
