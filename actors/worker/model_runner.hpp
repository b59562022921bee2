#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "actors/worker/kv_compactor.hpp"
#include "actors/worker/pass.hpp"
#include "actors/worker/sampling/drafter.hpp"
#include "actors/worker/sampling/row_sampler.hpp"
#include "actors/worker/sequence_table.hpp"
#include "actors/worker/step_partners.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Carries out step plans on one rank's model: runs the passes, samples, and writes the result. A
/// deterministic function of the weights and the plans so far; all ranks of a replica get the same
/// plans, and those of its last stage compute the same result. One thread at a time.
///
/// A step is begun, which on an asynchronous device only enqueues, and finished later. If the
/// device has sampled the tokens of the previous step, the next one is begun before their ids are
/// known here: its rows take them on the device (SamplingOps::resolve_sampled_ids).
///
/// In a pipeline only the last stage samples. It sends the ids to the first stage, which receives
/// them when a plan needs them, so that a stage is not held up by the one after it. The stages
/// between know that a sampled token exists, but not its id.
class ModelRunner {
 public:
  static constexpr std::size_t max_in_flight = 2;

  /// Blocks to allocate for the model's KV cache if plans may name `kv_blocks`: one more if its
  /// passes are captured in graphs, which padding rows write to.
  static std::int64_t blocks_to_allocate(const Model& model, std::int64_t kv_blocks) {
    return model.supports_graph() ? kv_blocks + 1 : kv_blocks;
  }

  /// `model` has its KV cache of blocks_to_allocate(kv_blocks) and was loaded for `parallel`. All
  /// outlive the runner. Errors: resource_exhausted.
  static Result<ModelRunner> create(Model& model, Ops& ops, const ParallelContext& parallel,
                                    std::int64_t kv_blocks);

  /// From now on a step waits for the tokens of the previous one, which a draft model reads, and no
  /// pass is captured. Call on all ranks of a job with a draft model, before the first step.
  void enable_drafting() { drafting_enabled_ = true; }
  /// Makes results carry up to `most` guesses of `drafter`, which has its KV cache and outlives the
  /// runner, for each sampled sequence. Call only on the rank that answers, after
  /// enable_drafting().
  void set_drafter(Drafter& drafter, std::int32_t most) {
    drafter_ = &drafter;
    max_drafts_ = most;
  }

  /// Allocates host memory for `host_blocks` KV blocks to which plans may swap sequences out. Call
  /// before the first such plan. Errors: resource_exhausted.
  Result<void> allow_swaps(std::int64_t host_blocks);

  bool is_in_pipeline() const { return stages_ > 1; }
  /// Sets if steps, without sampled rows, run on this stage alone (ForwardBatch::alone).
  void run_alone(bool alone) { alone_ = alone; }

  /// Records spans in `recorder`, which outlives the runner, from now on.
  void record_spans(SpanRecorder& recorder) { recorder_ = &recorder; }

  /// Tokens that have passed this rank's layers.
  std::uint64_t rows() const { return rows_; }

  /// True if the next plan may be begun; false if a step must be finished first.
  bool can_begin() const;
  /// Steps that are begun and not finished.
  std::size_t begun() const { return steps_.size(); }
  /// The number of the first begun step.
  std::uint64_t first_begun() const { return steps_.front().result.step; }
  /// Begins one step; can_begin() must hold. Errors: corrupt_data for a plan that does not fit the
  /// state; those of the model and of the collectives. After an error the state is void.
  Result<void> begin(const StepPlan& plan);
  /// True if finish() would return at once.
  bool is_ready() const;
  /// Finishes the step that was begun first; at least one must be begun. Only on the last stage
  /// does the result have sampled tokens. Errors: as begin.
  Result<StepResult> finish();

 private:
  /// A sampled token that this stage does not know yet, or never gets.
  static constexpr std::int32_t unknown_token = -1;
  /// Replaces a token that could not be sampled, in steps that were planned ahead of it.
  static constexpr std::int32_t token_after_failure = 0;

  /// A row of a pass whose logits are needed.
  struct HeadRow {
    std::size_t result = 0;  ///< index into StepResult::results
    SequenceId id = 0;
    std::uint64_t start = 0;    ///< KnownSequence::start
    std::int32_t position = 0;  ///< position of the row's token
    bool sample = false;        ///< true: sample the next token; false: score the known one
    /// For a row that samples: the number of drafts before it. It counts if all were accepted.
    std::size_t after_drafts = 0;
  };

  /// A sampled sequence of a step.
  struct Sampled {
    std::size_t result = 0;  ///< index into StepResult::results
    SequenceId id = 0;
    std::size_t drafts = 0;
  };

  /// A sequence whose sampled ids have not arrived yet.
  struct Awaited {
    SequenceId id = 0;
    std::size_t drafts = 0;
  };

  /// A begun step.
  struct Step {
    StepResult result;
    std::vector<HeadRow> heads;  ///< of its last pass, whose choices are begun; may be empty
    std::vector<Sampled> sampled;
    /// The device samples all its tokens, and the next step needs none of their ids on the host.
    bool chosen_on_device = true;
    bool samples_collected = false;  ///< its choices are finished and added to the sequences
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

  /// Applies what the plan says about sequences, and begins to copy what it swaps.
  Result<void> take_sequences(const StepPlan& plan);
  /// First stage: receives sampled ids until those of every sequence in the plan are there.
  Result<void> take_sampled_ids(const StepPlan& plan);
  /// All stages but the last: notes that this step's sampled sequences get a further token.
  void await_sampled_ids(const Step& step);
  /// Last stage: notes where on the device the sequences' next tokens will be.
  void await_device(const Step& step);
  /// Last stage: adds sampled tokens to the sequences.
  void take_sampled_ids_here(const Step& step);
  Result<void> send_sampled_ids(const Step& step);

  Result<void> add_drafts(Step& step);

  /// Adds rows of one sequence to the pass, as many of [begin, end) as fit; returns how many.
  std::int32_t add_rows(const SequenceStep& planned, std::int32_t begin, std::int32_t end,
                        Step& step);
  /// True if dividing the pass over the context ranks is faster than computing it on each.
  bool divides_pass() const;
  /// Runs the pass that add_rows has filled, begins its choices and empties it.
  Result<void> run_pass(Step& step);
  /// Runs passes without own tokens until no replica of the step domain has any.
  Result<void> join_passes_of_others();
  /// Agrees with the other replicas of the step domain on the next pass, which this one may have no
  /// rows for, and pads it if that is to be captured. All must call it.
  Result<void> meet_partners();
  /// Uploads the pass and runs it, with what the step domain has agreed on; returns its batch and
  /// its logits, if this stage has any.
  struct RanPass {
    ForwardBatch batch;
    Tensor logits;
  };
  Result<RanPass> forward();
  LogitsRow logits_row(const HeadRow& head) const;
  Result<void> begin_choices(const Tensor& logits, Step& step);
  Result<void> finish_choices(Step& step);
  /// Last stage: finishes the choices of a begun step, once, and adds them to the sequences.
  Result<void> collect_samples(Step& step);
  void take_choice(RowChoice choice, const HeadRow& row, StepResult& result) const;

  Model* model_;
  Ops* ops_;
  RankGroup tensor_;
  RankGroup context_;
  int context_rank_;
  Collectives* pipeline_;  ///< null on one stage
  int stage_;
  int stages_;
  std::int64_t kv_blocks_;
  bool drafting_enabled_ = false;
  bool alone_ = false;
  Drafter* drafter_ = nullptr;  ///< set on the rank that answers
  std::int32_t max_drafts_ = 0;
  SpanRecorder* recorder_ = nullptr;
  std::uint64_t rows_ = 0;
  std::optional<StepPartners> partners_;  ///< set if passes are run together with other replicas
  SequenceTable sequences_;
  std::unique_ptr<KvSwap> swap_;  ///< set if plans may swap
  std::deque<Step> steps_;        ///< begun, oldest first
  std::int64_t last_end_ns_ = 0;
  /// First stage of a pipeline: sequences whose sampled ids have not arrived, one entry per plan,
  /// oldest first.
  std::deque<std::vector<Awaited>> awaited_;
  std::uint64_t messages_taken_ = 0;  ///< messages of sampled ids, one per plan

  std::optional<Pass> pass_;              ///< being filled
  std::optional<KvCompactor> compactor_;  ///< set if the KvPolicy drops tokens
  std::vector<std::int32_t> sampled_;     ///< a message of sampled ids
  DeviceTensor logits_;                   ///< [this rank's share of max_head_rows, vocab] f32
  std::optional<RowSampler> sampler_;     ///< on the last stage
  std::vector<LogitsRow> rows_to_sample_;
};

}  // namespace troupe
