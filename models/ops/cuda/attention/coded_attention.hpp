#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/batch_plans.hpp"
#include "models/ops/cuda/attention/decode_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_attention.hpp"
#include "models/ops/cuda/common/device_buffer.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// Attention of bf16 over a cache of codes, for shapes that DecodeAttention takes. Sequences
/// of few rows are rows of the decode kernel, which reads codes, in mixed passes too. For others
/// the pages that they see are widened to bf16 first, for FlashInfer's kernels: long prompts in
/// FlashInferHopper's memory, others in memory of coded_prompt_bytes, as many at a time as it
/// holds. One thread at a time.
class CodedAttention {
 public:
  /// Both must outlive it. Errors: resource_exhausted, internal.
  static Result<std::unique_ptr<CodedAttention>> create(DecodeAttention& decode,
                                                        FlashAttention& flash);
  ~CodedAttention();
  CodedAttention(const CodedAttention&) = delete;
  CodedAttention& operator=(const CodedAttention&) = delete;

  static bool supports(const AttentionShape& shape, DType stored, DType activation);

  /// AttentionOps::plan: enqueues the upload of plans. Errors: internal, resource_exhausted.
  Result<void> plan(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);

  /// Enqueues AttentionOps::attend of a batch that was planned, all but the sequences that are
  /// left(). Errors: internal.
  Result<void> attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                      const KvLayer& cache, const Tensor& out, cudaStream_t stream);

  /// The sequences of a planned batch that no kernel here has memory for: attention of any shape
  /// takes them.
  std::vector<SequenceSpan> left(const AttentionBatch& batch) const;

 private:
  class Plan;
  struct Group;

  CodedAttention(DecodeAttention& decode, FlashAttention& flash);
  /// A batch of a group's sequences over the widened pages, whose table counts from 0.
  AttentionBatch widened_batch(const Plan& plan, std::size_t group,
                               const AttentionBatch& batch) const;

  DecodeAttention& decode_;
  FlashAttention& flash_;
  DeviceBuffer widened_;  ///< keys, then values, each of half the bytes
  DeviceBuffer counted_;  ///< [most pages of widened_] i32: 0, 1, ...
  PlansByTables<Plan> plans_;
  int plans_made_ = 0;
};

}  // namespace troupe
