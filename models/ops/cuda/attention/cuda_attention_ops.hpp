#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/attention/coded_attention.hpp"
#include "models/ops/cuda/attention/decode_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_mla.hpp"
#include "models/ops/cuda/attention/invariant_attention.hpp"
#include "models/ops/cuda/attention/sparse_rows.hpp"
#include "models/ops/cuda/cuda_context.hpp"

namespace troupe {

/// Attention: the choice among kernels is in cuda_attention.cu, what fills the cache in
/// cuda_rope_store.cu, coded_store.cu and cuda_latent_store.cu, rows for other ranks in
/// cuda_kv_rows.cu, compact in cuda_kv_compaction.cu, accumulate_weights in
/// cuda_attention_weights.cu, sparse attention in cuda_sparse_attention.cu, make_swap in
/// memory/kv_swap.cu.
class CudaAttentionOps final : public AttentionOps, private CudaComponent {
 public:
  static Result<std::unique_ptr<CudaAttentionOps>> create(CudaContext& context);

  Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                            std::int32_t block_size,
                                                            const AttentionShape& shape,
                                                            DType dtype) override;
  Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                            std::int64_t host_blocks) override;
  bool supports_graph(const AttentionShape& shape, DType stored) const override;
  PlannedAttention plan(const AttentionShape& shape, const AttentionBatch& batch) override;

 private:
  /// The attention kernels to try, fastest for the shape first.
  enum class AttentionKernel { invariant, coded, decode, flashinfer_mla, flashinfer, any_shape };

  explicit CudaAttentionOps(CudaContext& context) : CudaComponent(context) {}

  void do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                          const Tensor& rope, const AttentionShape& shape,
                          const AttentionBatch& batch, const KvLayer& cache,
                          const Tensor& q_out) override;
  void do_latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                            float eps, const Tensor& rope, const AttentionShape& shape,
                            const AttentionBatch& batch, const KvLayer& cache,
                            const Tensor& q_out) override;
  void do_gather_kv(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                    const Tensor& rows) override;
  void do_scatter_kv(const Tensor& rows, const AttentionShape& shape, const Tensor& slots,
                     const KvLayer& cache) override;
  void do_attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override;
  void do_compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
                  const KvLayer& cache) override;
  void do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                             const AttentionBatch& batch, const KvLayer& cache) override;
  // In cuda_sparse_attention.cu.
  void do_index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                           const AttentionShape& shape, const AttentionBatch& batch,
                           const KvLayer& cache) override;
  void do_attend_sparse(const Tensor& q, const IndexQueries& index, const AttentionShape& shape,
                        const AttentionBatch& batch, const KvLayer& cache,
                        const Tensor& out) override;
  // In cuda_projection_norm.cu.
  void do_square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums) override;
  void do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                           const ProjectionNorm& norm) override;

  AttentionKernel attention_kernel(const AttentionShape& shape, DType stored, DType activation,
                                   const AttentionBatch& batch) const;
  void attention_of_any_shape(const Tensor& q, const AttentionShape& shape,
                              const AttentionBatch& batch, const KvLayer& cache, const Tensor& out);
  /// Sparse attention is by FlashInfer's kernel for latents, not by the one for any shape.
  bool sparse_by_flashinfer(const AttentionShape& shape, DType stored, DType activation) const;
  Result<void> plan_sparse(const AttentionShape& shape, const AttentionBatch& batch);
  /// Enqueues the choice of the rows' keys.
  void choose_keys(const IndexQueries& index, const AttentionShape& shape,
                   const AttentionBatch& batch, const KvLayer& cache, const SparseRows& rows);

  /// Room for the softmaxes of so many queries; null if there is no memory.
  float2* softmaxes_for(std::int64_t queries);
  /// Room for so many entries of choices; null if there is no memory.
  std::int32_t* choices_for(std::int64_t entries);

  /// Of the cache that was allocated last, if it holds codes.
  std::optional<DType> codes_;
  std::vector<DeviceTensor>
      softmaxes_;  ///< the last one is used; recorded passes have earlier ones
  DeviceTensor choices_;
  std::vector<DeviceTensor> chosen_slots_;  ///< the last one is used; earlier plans have others
  DeviceTensor index_scores_;
  PlansByTables<SparseRows> sparse_rows_;
  // For bf16, unless deterministic.
  std::unique_ptr<FlashAttention> flash_attention_;
  std::unique_ptr<FlashInferMla> latent_attention_;
  std::unique_ptr<DecodeAttention> decode_attention_;  ///< where rows are one a sequence
  std::unique_ptr<CodedAttention> coded_attention_;    ///< once there is a cache of codes
  // If deterministic.
  std::unique_ptr<InvariantAttention> invariant_attention_;
};

}  // namespace troupe
