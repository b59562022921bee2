#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/paged_attention.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Batch-invariant attention of any rows of bf16 over pages of bf16: a row has the same bits
/// whatever the pass, as the only row of its sequence or among others, in any batch. The context is
/// split at every 512th position from 0 on, and parts are combined in order
/// (invariant_attention_kernel.hpp); adjacent rows of one sequence read it together, and single
/// rows of several sequences the parts that they share, where that is faster (cascade attention). A
/// batch is planned on the host, once for all layers. One thread at a time.
class InvariantAttention {
 public:
  /// `always_cascades`: see CudaOpsOptions. Errors: resource_exhausted, internal.
  static Result<std::unique_ptr<InvariantAttention>> create(bool always_cascades);
  ~InvariantAttention();
  InvariantAttention(const InvariantAttention&) = delete;
  InvariantAttention& operator=(const InvariantAttention&) = delete;

  static bool supports(const AttentionShape& shape, DType stored, DType activation);
  /// True if the batch is in pages that this kernel supports.
  static bool suits(const AttentionBatch& batch);

  /// AttentionOps::plan: enqueues the upload of a plan. Layout 1 is that of cascade attention, 0
  /// all others. Errors: internal, resource_exhausted.
  Result<PlannedAttention> plan(const AttentionShape& shape, const AttentionBatch& batch,
                                cudaStream_t stream);

  /// Enqueues AttentionOps::attend of a batch that was planned. Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

 private:
  class Plan;

  explicit InvariantAttention(bool always_cascades);

  bool always_cascades_;
  PartMemory parts_;  ///< for contexts shared by several blocks
  PlansByTables<Plan> plans_;
};

}  // namespace troupe
