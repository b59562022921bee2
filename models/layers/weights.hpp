#pragma once

#include <initializer_list>
#include <memory>
#include <span>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/layers/parameters.hpp"
#include "models/ops/ops.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The weights of one tensor rank: reads this rank's part of each parameter from the checkpoint and
/// hands it to Ops in the form a layer needs. What it is made of must outlive it.
///
/// Errors of all reads: those of Checkpoint::weight and shard_weight (they name file and tensor),
/// and what Ops says when device memory runs out.
class Weights {
 public:
  /// `compute`: bf16 rounds all matrices to bf16; f32 keeps them as stored.
  Weights(const ModelConfig& config, const Checkpoint& checkpoint,
          std::span<const WeightRule> rules, ShardOf shard, DType compute, Ops& ops)
      : config_(config),
        checkpoint_(checkpoint),
        rules_(rules),
        shard_(shard),
        compute_(compute),
        ops_(ops) {}

  using Stack = std::initializer_list<Parameter>;

  /// This rank's rows of the matrices in `stack`, one below the other, as one product. A
  /// row-parallel matrix is prepared in its rank's share of the S segments.
  Result<std::unique_ptr<Linear>> linear(Stack stack, std::int64_t layer) const;
  /// As linear, for all experts of a layer.
  Result<std::unique_ptr<GroupedLinear>> grouped_linear(Stack stack, std::int64_t layer) const;
  /// A vector in f32 on the device; all of it on every rank.
  Result<DeviceTensor> vector(Parameter parameter, std::int64_t layer) const;

  /// This rank's ceil(vocab / ranks) rows of a [vocab, hidden] matrix; rows that the vocabulary
  /// does not have are zero, so that all ranks have as many.
  Result<HostTensor> vocabulary_rows(Parameter parameter) const;

  const ShardOf& shard() const { return shard_; }

 private:
  const WeightRule& rule(Parameter parameter) const;
  Result<HostTensor> stacked(Stack stack, std::int64_t layer, std::int64_t expert) const;
  Result<int> segments(Parameter parameter, std::int64_t layer) const;

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  std::span<const WeightRule> rules_;
  ShardOf shard_;
  DType compute_;
  Ops& ops_;
};

/// Refuses what cannot be loaded on `tensor_size` ranks, reading headers only: missing tensors,
/// other shapes or dtypes than the config says, sizes that do not divide (what by what).
Result<void> check_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                           std::span<const WeightRule> rules, int tensor_size);

}  // namespace troupe
