#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "actors/step/step_plan.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "models/sampler/sampler.hpp"
#include "parallel/collectives/collectives.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Carries out step plans on one rank's model: keeps what the plans' deltas add up to (each
/// sequence's tokens and block table), runs the passes, samples, and writes the result. A
/// deterministic function of the weights and the plans so far; all ranks of a tensor group are
/// given the same plans and come to the same result. One thread at a time.
class ModelRunner {
 public:
  /// `model` has its KV cache of `kv_blocks` blocks; `tensor` is its tensor group. All outlive the
  /// runner. Errors: resource_exhausted.
  static Result<ModelRunner> create(Model& model, Ops& ops, Collectives& tensor,
                                    std::int64_t kv_blocks);

  /// Runs one step. Errors: corrupt_data for a plan that does not fit the state (unknown sequence,
  /// positions out of order, a block or token that does not exist); those of the model and of the
  /// collectives. After an error the state is void.
  Result<StepResult> run(const StepPlan& plan);

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;  ///< prompt, then what was generated
    std::int32_t prompt_tokens = 0;
    std::int32_t computed = 0;  ///< positions whose keys and values are in the cache
    SamplingParams sampling;
    std::vector<std::int32_t> blocks;
  };

  /// A row of a pass whose logits are wanted.
  struct HeadRow {
    std::size_t result = 0;  ///< index into StepResult::results
    const Sequence* sequence = nullptr;
    std::int32_t position = 0;  ///< of the row's token
    bool sample = false;        ///< sample its successor; otherwise score the known one
  };

  ModelRunner(Model& model, Ops& ops, Collectives& tensor, std::int64_t kv_blocks);
  Result<void> allocate();

  Result<void> apply_deltas(const StepPlan& plan);
  Result<void> check_step(const SequenceStep& step) const;
  /// Puts rows of one sequence into the pass, as many of [begin, end) as fit; returns how many.
  std::int32_t add_rows(const SequenceStep& step, std::int32_t begin, std::int32_t end,
                        std::size_t result);
  /// Runs the pass that add_rows has filled, chooses and scores, and empties it.
  Result<void> run_pass(StepResult& result);
  void choose(std::span<const float> logits, const HeadRow& row, std::span<std::byte> record);
  void take_record(std::span<const std::byte> record, const HeadRow& row, StepResult& result);

  Model* model_;
  Ops* ops_;
  Collectives* tensor_;
  std::int64_t kv_blocks_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  SamplerScratch scratch_;

  // The pass being filled; capacities are the model's limits.
  std::vector<std::int32_t> ids_, positions_, slots_, tables_, head_rows_;
  std::vector<SequenceSpan> spans_;
  std::vector<HeadRow> heads_;
  DeviceTensor device_ids_, device_positions_, device_slots_, device_tables_, device_heads_;
  DeviceTensor logits_;     ///< [max_head_rows, vocab] f32
  HostTensor host_logits_;  ///< the same on the host
  std::vector<std::byte> own_records_, all_records_;
};

}  // namespace troupe
