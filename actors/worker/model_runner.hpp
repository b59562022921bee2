#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/pass.hpp"
#include "actors/worker/sampling/drafter.hpp"
#include "actors/worker/sampling/row_sampler.hpp"
#include "actors/worker/sequence_table.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Carries out step plans on one rank's model: runs the passes, samples, and writes the result. A
/// deterministic function of the weights and the plans so far; all ranks of a replica are given the
/// same plans, and those of its last stage come to the same result. One thread at a time.
///
/// A step is begun, which on a device that works by itself only enqueues, and finished later. Where
/// the device has chosen the tokens of the step before, the next one is begun before their ids are
/// known here: its rows take them on the device (Ops::resolve_sampled_ids).
///
/// In a pipeline the last stage alone samples. It sends the ids to the first stage, which takes
/// them when a plan needs them, so that a stage is not held up by the one after it; the stages
/// between know of a sampled token that it is there, not which.
class ModelRunner {
 public:
  static constexpr std::size_t max_in_flight = 2;

  /// Blocks of the model's KV cache for `kv_blocks` that plans may name: where its passes are
  /// recorded, one more, which rows that only pad a pass write to.
  static std::int64_t blocks_to_allocate(const Model& model, std::int64_t kv_blocks) {
    return model.supports_graph() ? kv_blocks + 1 : kv_blocks;
  }

  /// `model` has its KV cache of blocks_to_allocate(kv_blocks) and was loaded for `parallel`. All
  /// outlive the runner. Errors: resource_exhausted.
  static Result<ModelRunner> create(Model& model, Ops& ops, const ParallelContext& parallel,
                                    std::int64_t kv_blocks);

  /// From now on a step waits for the tokens of the one before, and no pass is recorded: a draft
  /// model reads what each brought. On all ranks of a job that has one, before the first step.
  void enable_drafting() { drafting_enabled_ = true; }
  /// Results bring up to `most` guesses of `drafter`, which has its KV cache and outlives the
  /// runner, for each sequence that was sampled. On the rank that answers only, which expects them.
  void set_drafter(Drafter& drafter, std::int32_t most) {
    drafter_ = &drafter;
    max_drafts_ = most;
  }

  /// Makes host memory for `host_blocks` KV blocks that plans may swap sequences out to. Before the
  /// first plan that does. Errors: resource_exhausted.
  Result<void> allow_swaps(std::int64_t host_blocks);

  bool is_in_pipeline() const { return stages_ > 1; }
  /// Whether steps, of no sampled rows, run on this stage alone from now on (ForwardBatch::alone).
  void run_alone(bool alone) { alone_ = alone; }

  /// From now on notes what it does in `recorder`, which outlives the runner.
  void record_spans(SpanRecorder& recorder) { recorder_ = &recorder; }

  /// Tokens that have passed this rank's layers.
  std::uint64_t rows() const { return rows_; }

  /// Whether the next plan may be begun, or a step must be finished first.
  bool can_begin() const;
  /// Steps that are begun and not finished.
  std::size_t begun() const { return steps_.size(); }
  /// The number of the first of these.
  std::uint64_t first_begun() const { return steps_.front().result.step; }
  /// Begins one step; can_begin() must hold. Errors: corrupt_data for a plan that does not fit the
  /// state; those of the model and of the collectives. After an error the state is void.
  Result<void> begin(const StepPlan& plan);
  /// Whether finish() would return at once.
  bool is_ready() const;
  /// Finishes the step that was begun first; the result says what was sampled on the last stage
  /// only. At least one must be begun. Errors: as begin.
  Result<StepResult> finish();

 private:
  /// A sampled token that this stage has not been told, or is never told.
  static constexpr std::int32_t unknown_token = -1;
  /// Stands for the token that could not be sampled, in steps that were planned ahead of it.
  static constexpr std::int32_t token_after_failure = 0;

  /// A row of a pass whose logits are wanted.
  struct HeadRow {
    std::size_t result = 0;  ///< index into StepResult::results
    SequenceId id = 0;
    std::uint64_t start = 0;    ///< KnownSequence::start
    std::int32_t position = 0;  ///< of the row's token
    bool sample = false;        ///< sample its successor; otherwise score the known one
    /// Of a row that samples: how many drafts lie before it. It counts if they all held.
    std::size_t after_drafts = 0;
  };

  /// A step's sequence that is sampled.
  struct Sampled {
    std::size_t result = 0;  ///< index into StepResult::results
    SequenceId id = 0;
    std::size_t drafts = 0;
  };

  /// A sequence whose sampled ids did not come yet.
  struct Awaited {
    SequenceId id = 0;
    std::size_t drafts = 0;
  };

  /// A step that is begun.
  struct Step {
    StepResult result;
    std::vector<HeadRow> heads;  ///< of its last pass, whose choices are begun; may be none
    std::vector<Sampled> sampled;
    /// The device chooses all its tokens, and the next step needs none of them here.
    bool chosen_on_device = true;
    bool samples_collected = false;  ///< its choices are finished and in the sequences
    std::int64_t begin_ns = 0;
  };

  ModelRunner(Model& model, Ops& ops, const ParallelContext& parallel, std::int64_t kv_blocks);
  ShardOf shard() const {
    return tensor_.host == nullptr ? ShardOf{}
                                   : ShardOf{tensor_.host->rank(), tensor_.host->size()};
  }
  bool is_first_stage() const { return stage_ == 0; }
  bool is_last_stage() const { return stage_ + 1 == stages_; }
  Result<void> allocate();

  /// Takes what the plan says of sequences, and begins to copy what it swaps.
  Result<void> take_sequences(const StepPlan& plan);
  /// First stage: takes sampled ids until those of every sequence that the plan names are there.
  Result<void> take_sampled_ids(const StepPlan& plan);
  /// All stages but the last: notes that this step's sampled sequences have a further token.
  void await_sampled_ids(const Step& step);
  /// Last stage: notes in the sequences where on the device their next tokens will be.
  void await_device(const Step& step);
  /// Last stage: adds what was sampled to the sequences.
  void take_sampled_ids_here(const Step& step);
  Result<void> send_sampled_ids(const Step& step);

  Result<void> add_drafts(Step& step);

  /// Puts rows of one sequence into the pass, as many of [begin, end) as fit; returns how many.
  std::int32_t add_rows(const SequenceStep& planned, std::int32_t begin, std::int32_t end,
                        Step& step);
  /// Runs the pass that add_rows has filled, begins its choices and empties it.
  Result<void> run_pass(Step& step);
  /// Runs passes without tokens of its own until no replica that it shares experts with has any.
  Result<void> join_passes_of_others();
  /// The tokens of all replicas that share experts with this one, of which it has `own`; all must
  /// ask.
  Result<std::int64_t> domain_tokens(std::int64_t own);
  LogitsRow logits_row(const HeadRow& head) const;
  Result<void> begin_choices(const Tensor& logits, Step& step);
  Result<void> finish_choices(Step& step);
  /// Last stage: finishes the choices of a step that is begun, once, and takes them.
  Result<void> collect_samples(Step& step);
  void take_choice(RowChoice choice, const HeadRow& row, StepResult& result) const;

  Model* model_;
  Ops* ops_;
  RankGroup tensor_;
  Collectives* pipeline_;  ///< null on one stage
  Collectives* domain_;    ///< null unless passes are run together with other replicas
  int stage_;
  int stages_;
  std::int64_t kv_blocks_;
  bool drafting_enabled_ = false;
  bool alone_ = false;
  Drafter* drafter_ = nullptr;  ///< of the rank that answers
  std::int32_t max_drafts_ = 0;
  SpanRecorder* recorder_ = nullptr;
  std::uint64_t rows_ = 0;
  SequenceTable sequences_;
  std::unique_ptr<KvSwap> swap_;  ///< if plans may swap
  std::deque<Step> steps_;        ///< begun, oldest first
  std::int64_t last_end_ns_ = 0;
  /// First stage of a pipeline: whose sampled ids did not come yet, one entry a plan, oldest first.
  std::deque<std::vector<Awaited>> awaited_;
  std::uint64_t messages_taken_ = 0;  ///< of sampled ids, one a plan

  std::optional<Pass> pass_;           ///< being filled
  std::vector<std::int32_t> sampled_;  ///< a message of sampled ids
  DeviceTensor logits_;                ///< [this rank's share of max_head_rows, vocab] f32
  std::optional<RowSampler> sampler_;  ///< on the last stage
  std::vector<LogitsRow> rows_to_sample_;
};

}  // namespace troupe
