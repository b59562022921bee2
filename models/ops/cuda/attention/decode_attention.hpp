#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/paged_attention.hpp"
#include "models/ops/cuda/attention/prefix_plan.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Attention of one query row per sequence, bf16 over pages of bf16 or of codes, at
/// memory bandwidth: a block has the query heads that share a KV head; its warps take pages in
/// turn, each with the online softmax of FlashAttention (Dao et al., 2022, section 3.1). Long
/// contexts are split, and the block that ends last combines the parts (Flash-Decoding, Dao et al.,
/// 2023). Prefixes that sequences share are read once for many rows where that is faster, by a
/// kernel of its own before (cascade attention, prefix_kernel.hpp). A batch is planned on the host,
/// once for all layers. One thread at a time.
class DecodeAttention {
 public:
  /// `always_cascades`: see CudaOpsOptions. Errors: resource_exhausted, internal.
  static Result<std::unique_ptr<DecodeAttention>> create(bool always_cascades);
  ~DecodeAttention();
  DecodeAttention(const DecodeAttention&) = delete;
  DecodeAttention& operator=(const DecodeAttention&) = delete;

  static bool supports(const AttentionShape& shape, DType stored, DType activation);
  /// True if each sequence of the batch has one row, in pages that this kernel supports.
  static bool suits(const AttentionBatch& batch);

  /// AttentionOps::plan of a batch that suits: enqueues the upload of a plan. Layout 1 is that of
  /// cascade attention, 0 all others. Errors: internal, resource_exhausted.
  Result<PlannedAttention> plan(const AttentionShape& shape, const AttentionBatch& batch,
                                cudaStream_t stream);

  /// Plans rows over codes, each as a sequence of one row, in any order, of some rows of the pass.
  /// Rows may see keys that this pass writes anywhere, unless they are `early`: then the kernel may
  /// begin before the one before it has ended. Errors: internal, resource_exhausted.
  Result<void> plan_rows(const AttentionShape& shape, const AttentionBatch& batch, bool early,
                         cudaStream_t stream);

  /// Enqueues AttentionOps::attend of a batch that was planned. Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

 private:
  class Plan;

  explicit DecodeAttention(bool always_cascades);

  cudaError_t attend_to_prefixes(DecodePass& pass, const AttentionShape& shape,
                                 const PrefixPlan& plan, cudaStream_t stream);

  bool always_cascades_;
  PartMemory parts_;         ///< of split contexts
  PartMemory prefix_parts_;  ///< of rows in shared prefixes
  PlansByTables<Plan> plans_;
  PlansByTables<PrefixPlan> prefix_plans_;
};

}  // namespace troupe
