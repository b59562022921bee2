#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/drafter.hpp"
#include "actors/worker/pass.hpp"
#include "actors/worker/row_sampler.hpp"
#include "models/layers/cache_spec.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "models/sampler/sampling_params.hpp"
#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Carries out step plans on one rank's model: keeps what the plans' deltas add up to (each
/// sequence's tokens and block table), runs the passes, samples, and writes the result. A
/// deterministic function of the weights and the plans so far; all ranks of a replica are given the
/// same plans, and those of its last stage come to the same result. One thread at a time.
///
/// In a pipeline the last stage alone samples. It sends the ids to the first stage, which takes
/// them when a plan needs them, so that a stage is not held up by the one after it; the stages
/// between know of a sampled token that it is there, not which.
class ModelRunner {
 public:
  /// `model` has its KV cache of `kv_blocks` blocks and was loaded for `parallel`. All outlive the
  /// runner. Errors: resource_exhausted.
  static Result<ModelRunner> create(Model& model, Ops& ops, const ParallelContext& parallel,
                                    std::int64_t kv_blocks);

  /// From now on results bring up to `most` guesses of `drafter`, which has its KV cache and
  /// outlives the runner, for each sequence that was sampled. On the rank that answers only.
  void guess_with(Drafter& drafter, std::int32_t most) {
    drafter_ = &drafter;
    most_drafts_ = most;
  }

  /// From now on notes what it does in `recorder`, which outlives the runner.
  void record_spans(SpanRecorder& recorder) { recorder_ = &recorder; }

  /// Tokens that have passed this rank's layers.
  std::uint64_t rows() const { return rows_; }

  /// Runs one step; the result says what was sampled on the last stage only. Errors: corrupt_data
  /// for a plan that does not fit the state (unknown sequence, positions out of order, a block or
  /// token that does not exist); those of the model and of the collectives. After an error the
  /// state is void.
  Result<StepResult> run(const StepPlan& plan);

 private:
  /// A sampled token that this stage has not been told, or is never told.
  static constexpr std::int32_t unknown_token = -1;
  /// Stands for the token that could not be sampled, in steps that were planned ahead of it.
  static constexpr std::int32_t token_after_failure = 0;

  struct Sequence {
    /// The prompt and what was generated; while a step runs, its drafts too.
    std::vector<std::int32_t> tokens;
    std::int32_t prompt_tokens = 0;
    std::int32_t computed = 0;  ///< positions whose keys and values are in the cache
    SamplingParams sampling;
    Pass::Tables tables;               ///< [cache groups][blocks]
    std::uint64_t awaits_message = 0;  ///< the one that brings its last token's id; 0: none ever
  };

  /// A row of a pass whose logits are wanted.
  struct HeadRow {
    std::size_t result = 0;  ///< index into StepResult::results
    SequenceId id = 0;
    std::int32_t position = 0;  ///< of the row's token
    bool sample = false;        ///< sample its successor; otherwise score the known one
    /// Of a row that samples: how many drafts lie before it. It counts if they all held.
    std::size_t after_drafts = 0;
  };

  /// A sequence whose sampled ids did not come yet.
  struct Awaited {
    SequenceId id = 0;
    std::size_t drafts = 0;
  };

  ModelRunner(Model& model, Ops& ops, const ParallelContext& parallel, std::int64_t kv_blocks);
  bool is_first_stage() const { return stage_ == 0; }
  bool is_last_stage() const { return stage_ + 1 == stages_; }
  Result<void> allocate();

  /// First stage: takes sampled ids until those of every sequence that the plan names are there.
  Result<void> take_sampled_ids(const StepPlan& plan);
  /// All stages but the last: notes that this plan's sampled sequences have a further token.
  void await_sampled_ids(const StepPlan& plan);
  /// Last stage: adds what was sampled to the sequences; tells the first stage.
  Result<void> take_sampled_ids_here(const StepPlan& plan, const StepResult& result);

  Result<void> add_drafts(const StepPlan& plan, StepResult& result);

  Result<void> apply_deltas(const StepPlan& plan);
  Result<void> start(const NewSequence& started, std::uint64_t step);
  Result<void> check_step(const SequenceStep& step) const;
  Result<void> check_blocks(const SequenceStep& step) const;
  void take_blocks_and_drafts(const SequenceStep& step);
  /// Puts rows of one sequence into the pass, as many of [begin, end) as fit; returns how many.
  std::int32_t add_rows(const SequenceStep& step, std::int32_t begin, std::int32_t end,
                        std::size_t result);
  /// Runs the pass that add_rows has filled, chooses and scores, and empties it.
  Result<void> run_pass(StepResult& result);
  /// Runs passes without tokens of its own until no replica that it shares experts with has any.
  Result<void> join_passes_of_others();
  /// Whether any rank of the expert group has a pass to run; all must ask.
  Result<bool> any_has_tokens(bool here);
  LogitsRow logits_row(const HeadRow& head) const;
  Result<void> sample_rows(const Tensor& logits, StepResult& result);
  void take_choice(RowChoice choice, const HeadRow& row, StepResult& result) const;

  Model* model_;
  Ops* ops_;
  Collectives* tensor_;    ///< null on one rank
  Collectives* pipeline_;  ///< null on one stage
  Collectives* domain_;    ///< null unless passes are run together with other replicas
  int stage_;
  int stages_;
  std::int64_t kv_blocks_;
  std::vector<CacheSpec> groups_;
  Drafter* drafter_ = nullptr;
  std::int32_t most_drafts_ = 0;
  SpanRecorder* recorder_ = nullptr;
  std::uint64_t rows_ = 0;
  std::unordered_map<SequenceId, Sequence> sequences_;
  /// First stage of a pipeline: whose sampled ids did not come yet, one entry a plan, oldest first.
  std::deque<std::vector<Awaited>> awaited_;
  std::uint64_t messages_taken_ = 0;  ///< of sampled ids, one a plan

  std::optional<Pass> pass_;           ///< being filled
  std::vector<HeadRow> heads_;         ///< of the pass
  std::vector<std::int32_t> sampled_;  ///< a message of sampled ids
  DeviceTensor logits_;                ///< [max_head_rows, vocab] f32
  std::optional<RowSampler> sampler_;  ///< on the last stage
  std::vector<LogitsRow> rows_to_sample_;
};

}  // namespace troupe
