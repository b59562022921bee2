#pragma once

#include <memory>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/cuda/cuda_dense_ops.hpp"
#include "models/ops/cuda/cuda_stream_ops.hpp"
#include "models/ops/cuda/memory/cuda_memory_ops.hpp"
#include "models/ops/cuda/memory/cuda_weight_ops.hpp"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "models/ops/cuda/sampling/cuda_sampling_ops.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// make_cuda_ops says what it does.
class CudaOps final : public Ops {
 public:
  static Result<std::unique_ptr<Ops>> create(const CudaOpsOptions& options);
  ~CudaOps() override;

  DType activation_dtype() const override { return context_->dtype(); }
  std::int64_t rows_at_once() const override { return std::int64_t{1} << 40; }

  MemoryOps& memory() override { return memory_; }
  StreamOps& stream() override { return stream_; }
  WeightOps& weights() override { return weights_; }
  DenseOps& dense() override { return *dense_; }
  AttentionOps& attention() override { return *attention_; }
  MoeOps& moe() override { return moe_; }
  SamplingOps& sampling() override { return *sampling_; }

  CudaContext& context() { return *context_; }

 private:
  CudaOps(std::unique_ptr<CudaContext> context, std::unique_ptr<CudaDenseOps> dense,
          std::unique_ptr<CudaAttentionOps> attention, std::unique_ptr<CudaSamplingOps> sampling)
      : context_(std::move(context)),
        dense_(std::move(dense)),
        attention_(std::move(attention)),
        sampling_(std::move(sampling)) {}

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaDenseOps> dense_;
  std::unique_ptr<CudaAttentionOps> attention_;
  std::unique_ptr<CudaSamplingOps> sampling_;
  CudaMemoryOps memory_{*context_};
  CudaStreamOps stream_{*context_};
  CudaMoeOps moe_{*context_, *dense_};
  CudaWeightOps weights_{*context_};
};

}  // namespace troupe
