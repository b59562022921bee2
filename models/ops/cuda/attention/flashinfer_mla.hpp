#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/batch_plans.hpp"
#include "models/ops/cuda/common/device_buffer.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Multi-head latent attention in its absorbed form (DeepSeek-V2, 2024, section 2.1) of bf16 over
/// pages of bf16, by FlashInfer's kernel for Hopper: tiles of 64 rows times heads share a latent of
/// 512 elements and a rotated key of 64; long contexts are split over the multiprocessors. For
/// prompts and decode. A batch is planned on the host, once for all layers. One thread at a time.
class FlashInferMla {
 public:
  /// Errors: resource_exhausted, internal.
  static Result<std::unique_ptr<FlashInferMla>> create();
  ~FlashInferMla();
  FlashInferMla(const FlashInferMla&) = delete;
  FlashInferMla& operator=(const FlashInferMla&) = delete;

  static bool supports(const AttentionShape& shape, DType stored, DType activation);

  /// AttentionOps::plan: enqueues the upload of a plan, which has the same layout for all batches
  /// of one row a sequence. Errors: internal, resource_exhausted.
  Result<void> plan(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);

  /// Enqueues AttentionOps::attend of a batch that was planned. Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

 private:
  class Plan;

  FlashInferMla() = default;

  DeviceBuffer sums_;  ///< for split contexts; from the first plan on
  PlansByTables<Plan> plans_;
};

}  // namespace troupe
