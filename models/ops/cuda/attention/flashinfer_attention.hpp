#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/batch_plans.hpp"
#include "models/ops/cuda/attention/flashinfer_hopper.hpp"
#include "models/ops/cuda/common/device_buffer.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Attention of bf16 over pages of bf16 on tensor cores, by FlashInfer's kernels: blocks of query
/// rows and the heads that share a KV head, long contexts split over the multiprocessors. Heads of
/// other sizes than 64, 128 and 256 take the kernel for the next of these, with queries padded by
/// zeros. Sequences that suit FlashInferHopper are left to it. A batch is planned on the host,
/// once for all layers. One thread at a time.
class FlashAttention {
 public:
  /// Errors: resource_exhausted.
  static Result<std::unique_ptr<FlashAttention>> create();
  ~FlashAttention();
  FlashAttention(const FlashAttention&) = delete;
  FlashAttention& operator=(const FlashAttention&) = delete;

  static bool supports(const AttentionShape& shape, DType stored, DType activation);
  /// Whether attention of a supported shape can be captured in a graph.
  static bool supports_graph(const AttentionShape& shape);
  /// Elements behind the end of the cache that the kernel reads. They may hold anything but NaN and
  /// infinity.
  static std::int64_t elements_behind(const AttentionShape& shape);

  /// AttentionOps::plan: enqueues the upload of a plan. Where `batch` is recorded, a plan has the
  /// same layout for equal numbers of sequences. Errors: internal, resource_exhausted.
  Result<void> plan(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);

  /// False if the batch was not planned, or its plan has made room for others.
  bool has_plan(const AttentionBatch& batch) const;

  /// Enqueues AttentionOps::attend of a batch that was planned. Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

  /// Enqueues attention of one of the batch's sequences by FlashInferHopper, which must take the
  /// shape and the length; the cache may also hold codes. Errors: internal.
  Result<void> attend_long_prompt(const Tensor& q, const AttentionShape& shape,
                                  const AttentionBatch& batch, const SequenceSpan& span,
                                  const KvLayer& cache, const Tensor& out, cudaStream_t stream) {
    return long_prompts_.attend(q, shape, batch, span, cache, out, stream);
  }

 private:
  class Plan;

  FlashAttention() = default;
  Result<void> attend_planned(const Plan& plan, const Tensor& q, const AttentionShape& shape,
                              const AttentionBatch& batch, const KvLayer& cache, const Tensor& out,
                              cudaStream_t stream);
  /// Memory for the padded queries of a batch.
  Result<void> reserve_padded(const AttentionShape& shape, const AttentionBatch& batch);

  DeviceBuffer sums_;    ///< of contexts that are split
  DeviceBuffer padded_;  ///< queries of padded heads, and then results
  FlashInferHopper long_prompts_;
  PlansByTables<Plan> plans_;
};

}  // namespace troupe
