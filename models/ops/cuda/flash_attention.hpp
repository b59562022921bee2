#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/ops.hpp"

namespace troupe {

/// Attention of bf16 over pages of bf16 on tensor cores, by FlashInfer's kernels: blocks of query
/// rows and the heads that share a KV head, long contexts split over the multiprocessors. A pass is
/// planned once for all layers. One thread at a time.
class FlashAttention {
 public:
  /// `work` and `plan` are device memory for its own use, of at least the constants below; a pass
  /// has at most `most_sequences`. Errors: resource_exhausted.
  static Result<std::unique_ptr<FlashAttention>> create(DeviceTensor work, DeviceTensor plan);
  static constexpr std::int64_t work_bytes = std::int64_t{512} << 20;
  static constexpr std::int64_t plan_bytes = std::int64_t{32} << 20;
  ~FlashAttention();
  FlashAttention(const FlashAttention&) = delete;
  FlashAttention& operator=(const FlashAttention&) = delete;

  static bool supports(const AttentionShape& shape, const KvLayer& cache, DType activation);

  /// Enqueues Ops::attention. Batches with the same `pass` above 0 and the same `group` are planned
  /// once. Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

 private:
  struct Plan;

  FlashAttention(DeviceTensor work, DeviceTensor plan);
  Result<void> make_plan(const AttentionShape& shape, const AttentionBatch& batch,
                         cudaStream_t stream);
  std::byte* plan_memory() const;

  DeviceTensor work_;
  DeviceTensor plan_memory_;
  std::byte* host_ = nullptr;  ///< page-locked, as long as plan_memory_
  cudaEvent_t copied_ = nullptr;
  std::unique_ptr<Plan> plan_;
};

}  // namespace troupe
