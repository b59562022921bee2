#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <cuda_runtime.h>

#include "models/ops/cuda/attention/decode_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_mla.hpp"
#include "models/ops/cuda/attention/invariant_attention.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "models/ops/cuda/gemm/dense_gemm.hpp"
#include "models/ops/cuda/gemm/invariant_gemm.hpp"
#include "models/ops/cuda/memory/weight_upload.hpp"
#include "models/ops/cuda/stream_marks.hpp"
#include "parallel/device/cuda/stream_watch.hpp"

namespace troupe {

/// A weight in its original layout, [n, k] row-major in the Ops' dtype.
class CudaLinear final : public Linear {
 public:
  explicit CudaLinear(DeviceTensor weight, int segments = 1)
      : weight_(std::move(weight)), segments_(segments) {}

  std::int64_t out_features() const override { return weight_->shape()[0]; }
  std::int64_t in_features() const override { return weight_->shape()[1]; }
  std::size_t bytes() const override { return weight_->bytes(); }
  const Tensor& weight() const { return weight_.view(); }
  int segments() const { return segments_; }  ///< of k: deterministic GEMMs add their sums

 private:
  DeviceTensor weight_;
  int segments_;
};

/// Weights in their original layout, [experts, n, k] row-major.
class CudaGroupedLinear final : public GroupedLinear {
 public:
  explicit CudaGroupedLinear(DeviceTensor weights) : weights_(std::move(weights)) {}

  std::int64_t experts() const override { return weights_->shape()[0]; }
  std::int64_t out_features() const override { return weights_->shape()[1]; }
  std::int64_t in_features() const override { return weights_->shape()[2]; }
  std::size_t bytes() const override { return weights_->bytes(); }
  const Tensor& weights() const { return weights_.view(); }

 private:
  DeviceTensor weights_;
};

/// See make_cuda_ops. Memory and dense GEMMs are in cuda_ops.cpp, events and graphs in
/// stream_marks.cpp, single rows in elementwise.cu; the other operations are in the folder of their
/// kind, in the files whose names begin with cuda_, and in sampling/logprobs.cu and
/// memory/kv_swap.cu.
class CudaOps final : public Ops {
 public:
  static Result<std::unique_ptr<Ops>> create(const CudaOpsOptions& options);
  ~CudaOps() override;

  DType activation_dtype() const override { return dtype_; }
  std::optional<DeviceMemory> memory() override;

  Result<DeviceTensor> allocate(DType dtype, const Shape& shape) override;
  Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) override;
  void upload(const Tensor& host, const Tensor& device) override;
  void download(const Tensor& device, const Tensor& host) override;
  DeviceEvent record_event() override;
  Result<void> wait(DeviceEvent event) override;
  Result<void> synchronize() override;
  bool query(DeviceEvent event) override;
  bool supports_graph(const AttentionShape& shape, DType stored) const override;
  Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) override;
  void replay(const CapturedGraph& graph) override;

  Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments) override;
  Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                         int segments) override;
  Result<DeviceTensor> prepare_table(const Tensor& weight) override;
  Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments) override;
  Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                      int segments) override;
  Result<DeviceTensor> load_table(const StoredMatrix& weight) override;
  Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& progress) override;
  std::unique_ptr<Linear> share_table(const Tensor& table) override;
  Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                            std::int32_t block_size,
                                                            const AttentionShape& shape,
                                                            DType dtype) override;
  Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                            std::int64_t host_blocks) override;

  void embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
             const Tensor& out) override;
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override;
  void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                    const Tensor& out) override;
  void add(const Tensor& residual, const Tensor& x) override;
  void add_bias(const Tensor& x, const Tensor& bias) override;
  void linear(const Linear& weight, const Tensor& x, const Tensor& out) override;
  void linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                      const Tensor& out) override;
  void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out) override;
  void latent_rope_store(const Tensor& latent_q, const Tensor& rotated_q, const Tensor& kv,
                         const Tensor& norm, float eps, const Tensor& rope,
                         const AttentionShape& shape, const AttentionBatch& batch,
                         const KvLayer& cache, const Tensor& q_out) override;
  void plan_attention(const AttentionShape& shape, const AttentionBatch& batch) override;
  void attention(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override;
  void silu_mul(const Tensor& gate_up, const Tensor& out) override;
  void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
             const Tensor& ids, const Tensor& weights) override;
  void permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override;
  void count_rows(const ExpertBatch& batch, const Tensor& counts) override;
  void permute_received(const Tensor& ids, const Tensor& received_counts, std::int64_t first_expert,
                        const ExpertBatch& batch, const Tensor& counts) override;
  void route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                         const ExpertChoices& choices, const ExpertBatch& batch,
                         const Tensor& counts) override;
  void route_tokens(const Linear& router, const Tensor& x, const Tensor& logits, const Tensor& bias,
                    const RouterOptions& options, const ExpertChoices& choices,
                    const ExpertBatch& batch, const Tensor& counts) override;
  void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                      std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override;
  void grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                       std::int64_t top_k, const Tensor& scratch, const Tensor& out) override;
  void combine(const Tensor& x, const Tensor& weights, const Tensor& out) override;
  void combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                     const Tensor& out) override;
  void expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                  const ExpertChoices& choices, const ExpertBatch& batch,
                  const ExpertScratch& scratch, const Tensor& out) override;
  void tree_sum(const Tensor& x, const Tensor& out) override;
  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override;
  void concat_columns(const Tensor& parts, const Tensor& out) override;
  void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override;
  bool can_sample(const SampledRow& row, std::int64_t vocab) const override;
  void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
              const Tensor& ids) override;
  bool can_score(const ScoredRow& row, std::int64_t vocab) const override;
  void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
             const Tensor& scores) override;

  /// Returns the stream and makes its device this thread's.
  cudaStream_t stream();
  int device() const { return device_; }
  /// Waits for the stream, and for other ranks if their operations are on it.
  const std::shared_ptr<StreamWatch>& watch() const { return watch_; }
  /// Keeps the first failed operation.
  void check(cudaError_t error, std::string_view operation);
  void check(const Result<void>& done);

 private:
  explicit CudaOps(const CudaOpsOptions& options)
      : device_(options.device), dtype_(options.dtype), deterministic_(options.deterministic) {}

  /// Creates the GEMM and attention components.
  Result<void> make_parts(const CudaOpsOptions& options);
  /// Allocates uninitialised device memory, with `behind` more elements after the tensor.
  Result<DeviceTensor> allocate_unset(DType dtype, const Shape& shape, std::int64_t behind = 0);
  /// Begins to upload `weight` to `device` [rows, columns].
  void begin_load(const StoredMatrix& weight, const Tensor& device);
  /// Uploads `weight` (f32, bf16 or f16) in the Ops' dtype to `device`, and waits for it.
  Result<void> upload_weight(const Tensor& weight, const Tensor& device);
  /// The attention kernels to try, fastest for the shape first.
  enum class AttentionKernel { invariant, decode, flashinfer_mla, flashinfer, any_shape };
  AttentionKernel attention_kernel(const AttentionShape& shape, DType stored, DType activation,
                                   const AttentionBatch& batch) const;
  void attention_of_any_shape(const Tensor& q, const AttentionShape& shape,
                              const AttentionBatch& batch, const KvLayer& cache, const Tensor& out);
  void check_launch(std::string_view operation) { check(cudaPeekAtLastError(), operation); }

  int device_;
  DType dtype_;
  bool deterministic_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<StreamWatch> watch_ = std::make_shared<StreamWatch>();
  std::unique_ptr<DenseGemm> dense_gemm_;              ///< unless deterministic
  std::unique_ptr<FlashAttention> flash_attention_;    ///< for bf16
  std::unique_ptr<FlashInferMla> latent_attention_;    ///< for bf16
  std::unique_ptr<DecodeAttention> decode_attention_;  ///< for bf16, with one row per sequence
  std::unique_ptr<InvariantGemm> invariant_gemm_;      ///< if deterministic, instead of the above
  std::unique_ptr<InvariantAttention> invariant_attention_;  ///< if deterministic, instead of the
                                                             ///< above
  DeviceTensor sampled_rows_;                                ///< SampledRows of a pass, as bytes
  DeviceTensor row_summaries_;                               ///< for their logits: a SummaryMemory
  int multiprocessors_ = 0;
  StreamMarks marks_;
  std::unique_ptr<WeightUpload> upload_;  ///< until finish_loading()
  std::optional<Error> error_;
};

}  // namespace troupe
