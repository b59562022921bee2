#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/packed_weights.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {

// Waking the team costs a few microseconds; smaller work stays on the caller. Measured in bytes
// touched, at roughly 10 bytes a nanosecond.
inline constexpr std::int64_t parallel_bytes = 64 * 1024;

/// See make_cpu_ops. GEMMs and row operations are in cpu_ops.cpp, attention in cpu_attention.cpp,
/// experts in cpu_experts.cpp.
class CpuOps : public Ops {
 public:
  CpuOps(const CpuOpsOptions& options, const Kernels& kernels)
      : dtype_(options.dtype), kernels_(kernels), pool_(options.threads, options.cores_are_shared) {
    scratch_.resize(options.threads);
    reserve_scratch(4096);
  }

  DType activation_dtype() const override { return DType::f32; }
  // 256 rows of a few thousand floats are some megabytes, the size of one or two second-level
  // caches.
  std::int64_t rows_at_once() const override { return 256; }

  Result<DeviceTensor> allocate(DType dtype, const Shape& shape) override {
    try {
      auto* owner = new HostTensor(dtype, shape);
      return DeviceTensor(owner->view(), [owner](void*) { delete owner; });
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::resource_exhausted, "no memory for {} bytes: a tensor {} of {}",
                  static_cast<std::size_t>(shape.elements()) * size_of(dtype), shape.to_string(),
                  to_string(dtype));
    }
  }
  void upload(const Tensor& host, const Tensor& device) override {
    if (!host.empty()) std::memcpy(device.data(), host.data(), host.bytes());
  }
  void download(const Tensor& device, const Tensor& host) override { upload(device, host); }
  Result<void> synchronize() override { return {}; }

  Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments) override {
    TROUPE_TRY(PackedWeights packed, pack(std::span(&weight, 1), segments));
    return std::unique_ptr<Linear>(std::make_unique<CpuLinear>(std::move(packed)));
  }
  Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                         int segments) override {
    TROUPE_TRY(PackedWeights packed, pack(weights, segments));
    return std::unique_ptr<GroupedLinear>(std::make_unique<CpuGroupedLinear>(std::move(packed)));
  }
  Result<DeviceTensor> prepare_table(const Tensor& weight) override {
    TROUPE_TRY(DeviceTensor table, allocate(stored_dtype(weight.dtype(), dtype_), weight.shape()));
    convert(weight, table);
    return table;
  }
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
  void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out) override;
  void latent_rope_store(const Tensor& latent_q, const Tensor& rotated_q, const Tensor& kv,
                         const Tensor& norm, float eps, const Tensor& rope,
                         const AttentionShape& shape, const AttentionBatch& batch,
                         const KvLayer& cache, const Tensor& q_out) override;
  void attention(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override;
  void silu_mul(const Tensor& gate_up, const Tensor& out) override;
  void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
             const Tensor& ids, const Tensor& weights) override;
  void permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override;
  void count_rows(const ExpertBatch& batch, const Tensor& counts) override;
  void permute_received(const Tensor& ids, const Tensor& received_counts, std::int64_t first_expert,
                        const ExpertBatch& batch, const Tensor& counts) override;
  void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                      std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override;
  void combine(const Tensor& x, const Tensor& weights, const Tensor& out) override;
  void combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                     const Tensor& out) override;
  void tree_sum(const Tensor& x, const Tensor& out) override;
  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override;
  void concat_columns(const Tensor& parts, const Tensor& out) override;
  void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override;

 private:
  Result<PackedWeights> pack(std::span<const Tensor> weights, int segments) {
    try {
      TROUPE_TRY(PackedWeights packed, PackedWeights::pack(weights, segments, dtype_));
      reserve_scratch(gemm_scratch_floats(packed.k(), segments));
      return packed;
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::resource_exhausted, "no memory to pack {} matrices of {}",
                  weights.size(), weights[0].shape().to_string());
    }
  }

  void reserve_scratch(std::int64_t floats) {
    for (HostTensor& scratch : scratch_) {
      if (scratch->elements() < floats) scratch = HostTensor(DType::f32, Shape{floats});
    }
  }
  float* scratch(int member) const { return scratch_[member]->as<float>(); }

  /// Runs body(begin, end, member) over parts of [0, rows), on the team if `bytes` is large enough.
  template <class Body>
  void for_rows(std::int64_t rows, std::int64_t bytes, Body&& body) {
    if (rows < 2 || bytes < parallel_bytes || pool_.size() == 1) {
      if (rows > 0) body(std::int64_t{0}, rows, 0);
      return;
    }
    pool_.run([&](int member) {
      const Range range = split_evenly(rows, member, pool_.size());
      if (range.begin < range.end) body(range.begin, range.end, member);
    });
  }

  DType dtype_;
  const Kernels& kernels_;
  ThreadPool pool_;
  std::vector<HostTensor> scratch_;  // one per member
};

inline std::int64_t row_bytes(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.bytes());
}

}  // namespace troupe
