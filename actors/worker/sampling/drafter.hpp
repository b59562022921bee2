#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/worker/pass.hpp"
#include "actors/worker/sampling/row_sampler.hpp"
#include "models/model/model.hpp"
#include "models/ops/ops.hpp"
#include "models/sampler/sampling_params.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Refuses a draft model (unsupported) that cannot guess for `target` at up to `max_positions`: one
/// with another vocabulary, fewer positions, or a window. `folder` is for the message.
Result<void> check_draft_model(const std::string& folder, const ModelConfig& draft,
                               const ModelConfig& target, std::int64_t max_positions);

/// A small model that guesses what a large one will sample (Leviathan, Kalman, Matias 2023). It
/// reads every token that the large one reads, into a cache of its own with the same block tables,
/// and continues from there. It samples with the same parameters and random numbers as the large
/// model at the same positions, so that they agree as often as possible (Daliri, Musco, Suresh
/// 2025, "Coupling without communication and drafter-invariant speculative decoding").
///
/// Held whole by the one rank that answers steps. One thread at a time.
class Drafter {
 public:
  /// A sequence to guess tokens for.
  struct Task {
    std::span<const std::int32_t> tokens;  ///< all known tokens; the last is not computed yet
    std::size_t prompt_tokens = 0;
    const Pass::Tables* tables = nullptr;
    const SamplingParams* sampling = nullptr;
    std::vector<std::int32_t> drafts;  ///< out: up to the number asked for
  };

  /// Loads the model in `folder`; `limits` are the large model's. Errors: those of
  /// check_draft_model and load_model.
  static Result<Drafter> create(const std::string& folder, LoadFormat format,
                                const ModelConfig& target, const ModelLimits& limits, Ops& ops);

  std::size_t weight_bytes() const { return model_->weight_bytes(); }
  std::size_t kv_bytes_per_block() const { return model_->kv_bytes_per_block(); }
  /// Before the first pass; once.
  Result<void> allocate_kv_cache(std::int64_t blocks);

  /// Reads the tokens of a pass of the large model.
  Result<void> follow(const ForwardBatch& batch);
  /// Guesses up to `most` tokens for each task, fewer if its tables have no room for them.
  Result<void> propose(std::span<Task> tasks, std::int32_t most);

 private:
  Drafter(std::unique_ptr<Model> model, Ops& ops) : model_(std::move(model)), ops_(&ops) {}
  bool has_room_for_next(const Task& task) const;
  Result<bool> propose_one_more(std::span<Task> tasks, std::size_t so_far);

  std::unique_ptr<Model> model_;
  Ops* ops_;
  std::vector<Pass> pass_;                          ///< one, after allocate_kv_cache
  DeviceTensor logits_;                             ///< [max_head_rows, vocab] f32
  std::vector<RowSampler> sampler_;                 ///< one, too
  std::vector<std::vector<std::int32_t>> outputs_;  ///< by row: generated tokens and drafts
};

}  // namespace troupe
