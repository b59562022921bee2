#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "models/ops/cpu/cpu_context.hpp"
#include "models/ops/cpu/packed_weights.hpp"
#include "models/ops/ops.hpp"
#include "models/ops/unfused_moe.hpp"

namespace troupe {

// The components of the CPU's Ops. Each is in the file of its name; what takes a line is here.

/// Memory of the host, which is the device's.
class CpuMemoryOps final : public MemoryOps {
 public:
  std::optional<DeviceMemory> available() override { return std::nullopt; }
  Result<DeviceTensor> allocate(DType dtype, const Shape& shape) override {
    return allocate_on_cpu(dtype, shape);
  }
  Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) override {
    return allocate_on_cpu(dtype, shape);
  }

 private:
  void do_upload(const Tensor& host, const Tensor& device) override {
    if (!host.empty()) std::memcpy(device.data(), host.data(), host.bytes());
  }
  void do_download(const Tensor& device, const Tensor& host) override {
    if (!host.empty()) std::memcpy(host.data(), device.data(), host.bytes());
  }
};

/// Operations run at once, so there is nothing to wait for.
class CpuStreamOps final : public StreamOps {
 public:
  DeviceEvent record_event() override { return 0; }
  Result<void> wait(DeviceEvent /*event*/) override { return {}; }
  bool query(DeviceEvent /*event*/) override { return true; }
  Result<void> synchronize() override { return {}; }
  Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& /*enqueue*/) override {
    return fail(ErrorCode::unsupported, "the CPU records no operations");
  }
  void replay(const CapturedGraph& /*graph*/) override {}
};

/// Weights packed into panels (packed_weights.hpp), which are there at once. Matrices that are
/// stored as codes stay codes (coded_form).
class CpuWeightOps final : public WeightOps {
 public:
  explicit CpuWeightOps(CpuContext& context) : context_(context) {}

  Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments,
                                          WeightEncoding encoding) override;
  Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                         int segments,
                                                         WeightEncoding encoding) override;
  Result<DeviceTensor> prepare_table(const Tensor& weight) override;
  Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments,
                                       WeightEncoding encoding) override;
  Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                      int segments,
                                                      WeightEncoding encoding) override;
  Result<DeviceTensor> load_table(const StoredMatrix& weight) override;
  Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& /*progress*/) override {
    return LoadedWeights{};
  }
  Result<void> widen(Linear& weight) override {
    static_cast<CpuLinear&>(weight).widen(context_.pool());
    return {};
  }
  Result<void> widen(GroupedLinear& weight) override {
    static_cast<CpuGroupedLinear&>(weight).widen(context_.pool());
    return {};
  }
  std::unique_ptr<Linear> share_table(const Tensor& /*table*/) override { return nullptr; }

 private:
  Result<PackedWeights> pack(std::span<const Tensor> weights, int segments);
  Result<PackedWeights> pack_codes(std::span<const StoredMatrix> weights, const CodedForm& form,
                                   int segments);

  CpuContext& context_;
};

/// Products and rows.
class CpuDenseOps final : public DenseOps {
 public:
  explicit CpuDenseOps(CpuContext& context) : context_(context) {}

  void watch_rows(const Tensor& peak) override {
    context_.set_peak(peak.empty() ? nullptr : peak.as<float>());
  }

 private:
  void do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                const Tensor& out) override;
  void do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                   const Linear* next) override;
  void do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                       const Tensor& out, const Linear* next) override;
  void do_add(const Tensor& residual, const Tensor& x) override;
  void do_add_bias(const Tensor& x, const Tensor& bias) override;
  void do_linear(const Linear& weight, const Tensor& x, const Tensor& out) override;
  void do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                         const Tensor& out, const Linear* /*next*/) override {
    do_linear(weight, x, scratch);
    do_silu_mul(scratch, out);
  }
  void do_silu_mul(const Tensor& gate_up, const Tensor& out) override;
  void do_activate(const Tensor& x, Activation activation, const Tensor& out) override;
  void do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                     const Tensor& out) override;
  void do_scale(const Tensor& x, float factor, float soft_cap) override;
  void do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) override;
  void do_tree_sum(const Tensor& x, const Tensor& out) override;
  void do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override;
  void do_concat_columns(const Tensor& parts, const Tensor& out) override;

  CpuContext& context_;
};

/// Attention in tiles of rows (attention_kernels.hpp). make_swap is in cpu_swap.cpp, gather_kv in
/// cpu_kv_rows.cpp, compact in cpu_kv_compaction.cpp,
/// attend_sparse in cpu_sparse_attention.cpp.
class CpuAttentionOps final : public AttentionOps {
 public:
  explicit CpuAttentionOps(CpuContext& context) : context_(context) {}

  Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                            std::int32_t block_size,
                                                            const AttentionShape& shape,
                                                            DType dtype) override;
  Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                            std::int64_t host_blocks) override;
  bool supports_graph(const AttentionShape& /*shape*/, DType /*stored*/) const override {
    return false;
  }
  PlannedAttention plan(const AttentionShape& /*shape*/, const AttentionBatch& /*batch*/) override {
    return {};
  }

 private:
  void do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                          const Tensor& rope, const AttentionShape& shape,
                          const AttentionBatch& batch, const KvLayer& cache,
                          const Tensor& q_out) override;
  void do_latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                            float eps, const Tensor& rope, const AttentionShape& shape,
                            const AttentionBatch& batch, const KvLayer& cache,
                            const Tensor& q_out) override;
  void do_gather_kv(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                    const Tensor& rows) override;
  void do_scatter_kv(const Tensor& rows, const AttentionShape& shape, const Tensor& slots,
                     const KvLayer& cache) override;
  void do_index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                           const AttentionShape& shape, const AttentionBatch& batch,
                           const KvLayer& cache) override;
  void do_attend_sparse(const Tensor& q, const IndexQueries& index, const AttentionShape& shape,
                        const AttentionBatch& batch, const KvLayer& cache,
                        const Tensor& out) override;
  void do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                             const AttentionBatch& batch, const KvLayer& cache) override;
  void do_compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
                  const KvLayer& cache) override;
  void do_attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override;
  void do_square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums) override;
  void do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                           const ProjectionNorm& norm) override;

  /// A row that attends to some of its keys: `attention` without scratch, first_head and rows.
  struct SparseRow {
    AttentionJob attention;
    IndexScoresJob index;
  };
  /// A thread's memory for such rows; grows with the longest context.
  struct SparseScratch {
    std::vector<float> scores;
    std::vector<std::int32_t> chosen;
    HostTensor gathered;  // pages of the cache's layout
    std::vector<std::int32_t> pages;
  };
  void attend_chosen(const SparseRow& row, SparseScratch& scratch);

  CpuContext& context_;
  std::vector<SparseScratch> sparse_scratch_;
};

/// How many of the `group` heads that read one KV head share a tile: the most that fit and divide
/// `group`.
std::int64_t heads_of_tile(std::int64_t group);

/// Experts, one operation after the other.
class CpuMoeOps final : public MoeOps {
 public:
  CpuMoeOps(CpuContext& context, DenseOps& dense) : context_(context), dense_(dense) {}

 private:
  void do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                const Tensor& ids, const Tensor& weights) override;
  void do_permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override;
  void do_count_rows(const ExpertBatch& batch, const Tensor& counts) override;
  void do_permute_received(const Tensor& ids, const Tensor& received_counts,
                           std::int64_t first_expert, const ExpertBatch& batch,
                           const Tensor& counts) override;
  void do_route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                            const ExpertChoices& choices, const ExpertBatch& batch,
                            const Tensor& counts) override {
    unfused_route_and_permute(*this, logits, bias, options, choices, batch, counts);
  }
  void do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                       const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts) override {
    unfused_route_tokens(*this, dense_, router, x, logits, bias, options, choices, batch, counts);
  }
  void do_heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) override;
  void do_grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                         std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override;
  void do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                          std::int64_t top_k, const Tensor& scratch, const Tensor& out) override {
    unfused_grouped_gate_up(*this, dense_, weights, x, batch, top_k, scratch, out);
  }
  void do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) override;
  void do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                          const Tensor& out) override;
  void do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) override;
  void do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                        const Tensor& out) override;
  void do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                     const ExpertChoices& choices, const ExpertBatch& batch,
                     const ExpertScratch& scratch, const Tensor& out,
                     const SharedMlp& /*none*/) override {
    unfused_expert_mlp(*this, gate_up, down, x, choices, batch, scratch, out);
  }

  CpuContext& context_;
  DenseOps& dense_;
};

/// Tokens are chosen by models/sampler.
class CpuSamplingOps final : public SamplingOps {
 public:
  bool can_sample(const SampledRow& /*row*/, std::int64_t /*vocab*/) const override {
    return false;
  }
  bool can_score(const ScoredRow& /*row*/, std::int64_t /*vocab*/) const override { return false; }

 private:
  void do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override;
  void do_sample(const Tensor& /*logits*/, std::span<const SampledRow> /*rows*/,
                 const Tensor& /*edited*/, const Tensor& /*ids*/) override {}
  void do_score(const Tensor& /*logits*/, std::span<const ScoredRow> /*rows*/,
                const Tensor& /*ids*/, const Tensor& /*scores*/) override {}
};

/// make_cpu_ops says what it does.
class CpuOps final : public Ops {
 public:
  CpuOps(const CpuOpsOptions& options, const Kernels& kernels) : context_(options, kernels) {}

  DType activation_dtype() const override { return DType::f32; }
  // 256 rows of a few thousand floats are some megabytes: what a second-level cache or two hold.
  std::int64_t rows_at_once() const override { return 256; }

  MemoryOps& memory() override { return memory_; }
  StreamOps& stream() override { return stream_; }
  WeightOps& weights() override { return weights_; }
  DenseOps& dense() override { return dense_; }
  AttentionOps& attention() override { return attention_; }
  MoeOps& moe() override { return moe_; }
  SamplingOps& sampling() override { return sampling_; }

 private:
  CpuContext context_;
  CpuMemoryOps memory_;
  CpuStreamOps stream_;
  CpuWeightOps weights_{context_};
  CpuDenseOps dense_{context_};
  CpuAttentionOps attention_{context_};
  CpuMoeOps moe_{context_, dense_};
  CpuSamplingOps sampling_;
};

}  // namespace troupe
