#pragma once

#include <utility>
#include <vector>

#include "models/families/family.hpp"
#include "models/layers/embedding.hpp"
#include "models/layers/head.hpp"
#include "models/model/model.hpp"

namespace troupe {

/// A decoder of any family: embedding, layers, head.
class DecoderModel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(const ModelConfig& config,
                                             const Checkpoint& checkpoint, Ops& ops,
                                             const ParallelContext& parallel,
                                             const ModelLimits& limits);

  Result<void> forward(const ForwardBatch& batch, const Tensor& logits) override;
  std::size_t kv_bytes_per_block() const override;
  Result<void> allocate_kv_cache(std::int64_t blocks) override;
  std::size_t weight_bytes() const override;
  const ModelConfig& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }

 private:
  DecoderModel(const ModelConfig& config, const ModelLimits& limits, Ops& ops)
      : config_(config), limits_(limits), ops_(ops) {}

  Result<void> build(const Checkpoint& checkpoint, const ParallelContext& parallel, ShardOf shard);
  Result<void> build_rope();
  Result<void> check_batch(const ForwardBatch& batch, const Tensor& logits) const;

  ModelConfig config_;
  ModelLimits limits_;
  Ops& ops_;
  AttentionShape attention_;
  Workspace space_;
  std::optional<TensorGroup> tensor_;
  DeviceTensor rope_;  // [max_positions, head_dim] f32
  std::optional<Embedding> embedding_;
  std::vector<DecoderLayer> layers_;
  std::optional<Head> head_;
  std::vector<std::pair<DeviceTensor, DeviceTensor>> kv_memory_;  // keys, values of each layer
  std::vector<KvLayer> kv_;
};

}  // namespace troupe
