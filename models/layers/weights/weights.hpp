#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/layers/model_limits.hpp"
#include "models/layers/weights/kernel_table.hpp"
#include "models/layers/weights/parameters.hpp"
#include "models/layers/weights/rounding_matrices.hpp"
#include "models/ops/ops.hpp"
#include "models/ops/stored_matrix.hpp"
#include "parallel/experts/expert_share.hpp"
#include "parallel/mesh/mesh.hpp"
#include "parallel/sharding/sharding.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The weights of one rank: reads this rank's part of each parameter from the checkpoint and passes
/// it to Ops in the form a layer needs. Its constructor's arguments must outlive it, the checkpoint
/// until WeightOps::finish_loading().
///
/// Errors of all reads: those of Checkpoint::weight and shard_weight (they name file and tensor),
/// and those of Ops when device memory runs out.
class Weights {
 public:
  /// The weights of `rank`, for which check_weights must have passed. `limits` give the precision:
  /// bf16 rounds all matrices to bf16; f32 keeps them as stored.
  Weights(const ModelConfig& config, const Checkpoint& checkpoint,
          std::span<const WeightRule> rules, const Mesh& mesh, int rank, const ModelLimits& limits,
          Ops& ops)
      : config_(config),
        checkpoint_(checkpoint),
        rules_(rules),
        shard_{mesh.coordinates(rank).tensor, mesh.shape().tensor},
        dense_shard_{mesh.dense_index(rank), mesh.dense_size()},
        experts_(expert_share(config.moe ? config.moe->experts : 0, mesh, rank)),
        compute_(limits.compute),
        kv_dtype_(limits.kv_dtype),
        encoding_(limits.encoding),
        quantize_head_(limits.quantize_head),
        is_quantized_(!checkpoint.quantization().groups.empty()),
        exact_sums_(limits.exact_sums),
        ops_(ops) {}

  using Stack = std::initializer_list<Parameter>;

  /// Returns this rank's rows of the matrices in `stack`, one below the other, as one matrix. A
  /// row-parallel matrix is prepared in its rank's share of the S segments.
  Result<std::unique_ptr<Linear>> linear(Stack stack, std::int64_t layer) const;
  /// Like linear, for the experts of a layer that this rank holds, or its part of them.
  Result<std::unique_ptr<GroupedLinear>> grouped_linear(Stack stack, std::int64_t layer) const;
  /// [experts of this rank, elements] f32 on the device: for each the elements of the vectors in
  /// `stack`, one after the other. With `of_all`, for all experts, and whole.
  Result<DeviceTensor> expert_vectors(Stack stack, std::int64_t layer, bool of_all) const;
  /// Returns the matrix of linear() in host memory, for layers that rearrange it before they
  /// prepare() it. As stored, or bf16 if `compute` rounds.
  Result<HostTensor> matrix(Stack stack, std::int64_t layer) const;
  /// Makes a linear of what a layer has made of the matrices in `stack`; it may be freed then.
  Result<std::unique_ptr<Linear>> prepare(Stack stack, std::int64_t layer,
                                          const Tensor& rearranged) const;
  /// This rank's elements of the vectors in `stack`, or of a matrix of one row, one after the
  /// other, in f32 on the device.
  Result<DeviceTensor> vector(Stack stack, std::int64_t layer) const;
  Result<DeviceTensor> vector(Parameter parameter, std::int64_t layer) const {
    return vector({parameter}, layer);
  }
  /// The same in host memory, for layers that rearrange it and upload() it.
  Result<HostTensor> host_vector(Stack stack, std::int64_t layer) const;
  Result<DeviceTensor> upload(const HostTensor& values) const;

  /// This rank's ceil(vocab / ranks) rows of a [vocab, hidden] matrix, for Ops to load; rows that
  /// the vocabulary does not have are zero, so that all ranks have as many.
  Result<StoredMatrix> vocabulary_rows(Parameter parameter) const;

  /// Sets the fixed scales of a layer's keys and values, if the checkpoint has some for the codes
  /// of the KV cache. Errors: one that is not a positive number.
  Result<void> set_kv_scales(std::int64_t layer, AttentionShape& shape) const;

  /// How Ops shall hold a matrix of this parameter; of the embedding as a tied head.
  WeightEncoding encoding_of(Parameter parameter) const {
    return encoding_for(parameter, encoding_, is_quantized_, quantize_head_);
  }
  /// For note() of a matrix that was made from matrix().
  std::string_view why_decoded() const { return is_quantized_ ? "as it is rearranged" : ""; }
  /// Notes a matrix that was loaded, and what it is multiplied as; `why`: not as the codes that it
  /// is stored in. linear(), grouped_linear() and prepare() do so themselves.
  void note(Stack stack, std::int64_t layer, Linear& matrix, std::string_view why = {}) const;
  void note(Stack stack, std::int64_t layer, GroupedLinear& matrices,
            std::string_view why = {}) const;
  /// What was noted, by all copies.
  std::vector<std::string> kernels() const { return kernels_->lines(); }
  const RoundingMatrices& rounding() const { return *rounding_; }  ///< but for the head
  const ShardOf& shard() const { return shard_; }                  ///< of attention
  const ShardOf& dense_shard() const { return dense_shard_; }      ///< of what is_dense
  /// The weights of another shard, which need not be a tensor rank's, but for experts.
  Weights with_shard(ShardOf shard) const {
    Weights others = *this;
    others.shard_ = shard;
    return others;
  }

 private:
  /// The number of a tensor of a layer's attention; 0 if there is none.
  Result<float> kv_scale(std::string_view name, std::int64_t layer) const;
  const WeightRule& rule(Parameter parameter) const;
  /// This rank's share of a parameter's rows or columns.
  ShardOf shard_of(Parameter parameter) const {
    if (is_expert(parameter)) return experts_.part;
    return is_dense(parameter) ? dense_shard_ : shard_;
  }
  void note_kernel(Stack stack, std::int64_t layer, const std::string& kernel,
                   std::string_view why) const;
  /// The stack's matrices of an expert, one below the other.
  Result<StoredMatrix> stacked(Stack stack, std::int64_t layer, std::int64_t expert) const;
  /// This rank's rows and columns of a parameter that is stored as expert_columns. A vector has one
  /// column.
  Result<StoredPart> expert_part(Parameter parameter, std::int64_t layer, std::int64_t expert,
                                 ShardOf shard) const;
  Result<int> segments(Parameter parameter, std::int64_t layer) const;

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  std::span<const WeightRule> rules_;
  ShardOf shard_;
  ShardOf dense_shard_;
  ExpertShare experts_;
  DType compute_;
  DType kv_dtype_;
  WeightEncoding encoding_;
  std::optional<bool> quantize_head_;
  bool is_quantized_;
  std::shared_ptr<KernelTable> kernels_ = std::make_shared<KernelTable>();
  std::shared_ptr<RoundingMatrices> rounding_ = std::make_shared<RoundingMatrices>();
  bool exact_sums_;
  Ops& ops_;
};

/// The segments of a row-parallel matrix that each of `ranks` has, at most `most` in all; 1 of
/// others. Errors: those of segments_per_rank.
Result<int> segments_of(const WeightRule& rule, const std::string& name, const ModelConfig& config,
                        int ranks, int most = max_segments);

/// Refuses weights that cannot be loaded on the ranks of `mesh`, reading headers only: missing
/// tensors, other shapes or dtypes than the config says, sizes that do not divide (what by what).
Result<void> check_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                           std::span<const WeightRule> rules, const Mesh& mesh);

/// Refuses quantised weights with scales that are not finite, of which it reads all.
Result<void> check_scales(const ModelConfig& config, const Checkpoint& checkpoint,
                          std::span<const WeightRule> rules);

}  // namespace troupe
