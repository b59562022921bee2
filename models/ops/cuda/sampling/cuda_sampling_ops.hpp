#pragma once

#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/sampling_ops.hpp"

namespace troupe {

/// Tokens are chosen in cuda_sampler.cu, log-probabilities found in logprobs.cu.
class CudaSamplingOps final : public SamplingOps, private CudaComponent {
 public:
  static Result<std::unique_ptr<CudaSamplingOps>> create(CudaContext& context);

  bool can_sample(const SampledRow& row, std::int64_t vocab) const override;
  bool can_score(const ScoredRow& row, std::int64_t vocab) const override;

 private:
  explicit CudaSamplingOps(CudaContext& context) : CudaComponent(context) {}

  void do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override;
  void do_sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
                 const Tensor& ids) override;
  void do_score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
                const Tensor& scores) override;

  DeviceTensor sampled_rows_;   ///< SampledRows of a pass, as bytes
  DeviceTensor row_summaries_;  ///< of their logits: a SummaryMemory
};

}  // namespace troupe
