#include "models/ops/cpu/cpu_ops.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/packed_weights.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {
namespace {

// Waking the team costs a few microseconds; less work than this stays on the caller. Measured in
// bytes touched, at roughly 10 bytes a nanosecond.
constexpr std::int64_t parallel_bytes = 64 * 1024;

class CpuOps final : public Ops {
 public:
  CpuOps(const CpuOpsOptions& options, const Kernels& kernels)
      : dtype_(options.dtype), kernels_(kernels), pool_(options.threads) {
    scratch_.resize(options.threads);
    reserve_scratch(std::max(attention_scratch_floats, std::int64_t{4096}));
  }

  DType activation_dtype() const override { return DType::f32; }

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
  void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                      std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override;
  void combine(const Tensor& x, const Tensor& weights, const Tensor& out) override;
  void tree_sum(const Tensor& x, const Tensor& out) override;
  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override;

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

  /// body(begin, end, member) over parts of [0, rows), on the team if `bytes` is worth it.
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
  std::vector<HostTensor> scratch_;  // one a member
};

std::int64_t row_bytes(const Tensor& tensor) { return static_cast<std::int64_t>(tensor.bytes()); }

Result<std::pair<DeviceTensor, DeviceTensor>> CpuOps::allocate_kv(std::int64_t blocks,
                                                                  std::int32_t block_size,
                                                                  const AttentionShape& shape,
                                                                  DType dtype) {
  const bool odd_latent =
      shape.latent != 0 &&
      (shape.latent % 16 != 0 || shape.latent >= shape.head_dim || shape.kv_heads != 1);
  if (odd_latent || block_size < 16 || block_size % 16 != 0 || shape.head_dim < 16 ||
      shape.head_dim % 16 != 0 || shape.head_dim > attention_max_head_dim || shape.kv_heads < 1 ||
      shape.heads % shape.kv_heads != 0 || shape.heads / shape.kv_heads > attention_tile_rows ||
      (dtype != DType::f32 && dtype != DType::bf16)) {
    return fail(ErrorCode::unsupported,
                "the CPU's attention wants block_size and head_dim to be multiples of 16, head_dim "
                "<= {}, heads / kv_heads a whole number <= {}, a latent part that is a multiple of "
                "16 and f32 or bf16; found block_size {}, head_dim {} ({} latent), {} heads, {} KV "
                "heads, {}",
                attention_max_head_dim, attention_tile_rows, block_size, shape.head_dim,
                shape.latent, shape.heads, shape.kv_heads, to_string(dtype));
  }
  TROUPE_TRY(DeviceTensor keys,
             allocate(dtype, Shape{blocks, shape.kv_heads, shape.head_dim, block_size}));
  if (shape.latent != 0) return std::pair(std::move(keys), DeviceTensor());
  TROUPE_TRY(DeviceTensor values,
             allocate(dtype, Shape{blocks, shape.kv_heads, block_size, shape.head_dim}));
  return std::pair(std::move(keys), std::move(values));
}

void CpuOps::embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                   const Tensor& out) {
  const std::int64_t vocab = table[0], width = table[1];
  const auto* bytes = static_cast<const char*>(table.data());
  const std::int64_t stride = width * static_cast<std::int64_t>(size_of(table.dtype()));
  for_rows(ids[0], row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = ids.as<std::int32_t>()[i] - vocab_begin;
      float* target = out.as<float>() + i * width;
      if (row < 0 || row >= vocab) {
        std::memset(target, 0, static_cast<std::size_t>(width) * sizeof(float));
      } else {
        kernels_.rows.widen_row(bytes + row * stride, table.dtype(), width, target);
      }
    }
  });
}

void CpuOps::rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  const std::int64_t width = weight[0];
  for_rows(x.elements() / width, row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    kernels_.rows.rms_norm(x.as<float>() + begin * width, weight.as<float>(), eps, end - begin,
                           width, out.as<float>() + begin * width);
  });
}

void CpuOps::add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                          const Tensor& out) {
  const std::int64_t width = weight[0];
  for_rows(x.elements() / width, 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t at = begin * width;
    kernels_.rows.add_rms_norm(residual.as<float>() + at, x.as<float>() + at, weight.as<float>(),
                               eps, end - begin, width, out.as<float>() + at);
  });
}

void CpuOps::add(const Tensor& residual, const Tensor& x) {
  const auto row_bytes_of_both = static_cast<std::int64_t>(2 * sizeof(float));
  for_rows(x.elements(), row_bytes_of_both, [&](std::int64_t begin, std::int64_t end, int) {
    auto* sum = residual.as<float>();
    const auto* add = x.as<float>();
    for (std::int64_t i = begin; i < end; ++i) sum[i] += add[i];
  });
}

void CpuOps::add_bias(const Tensor& x, const Tensor& bias) {
  const std::int64_t width = bias[0];
  for_rows(x.elements() / width, 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    kernels_.rows.add_bias(x.as<float>() + begin * width, bias.as<float>(), end - begin, width);
  });
}

void CpuOps::linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  const PackedWeights& packed = static_cast<const CpuLinear&>(weight).packed();
  const std::int64_t rows = x.elements() / packed.k(), panels = packed.panels_per_matrix();
  if (rows == 0) return;
  GemmJob job = packed.job(0);
  job.x = x.as<float>();
  job.out = out.as<float>();
  job.row_end = rows;
  // A product streams its weights (about 10 bytes a nanosecond) or is bound by its FMAs (about 100
  // a nanosecond).
  const std::int64_t work =
      std::max(static_cast<std::int64_t>(packed.bytes()), rows * packed.n() * packed.k() / 10);
  const int members = pool_.size();
  if (members == 1 || work < parallel_bytes) {
    job.scratch = scratch(0);
    kernels_.gemm(job);
    return;
  }
  // Columns are split, rows instead where there are too few panels to share them out evenly. Parts
  // are handed out one by one, so that a member that is late, because others use its core, costs
  // one part and not half of the work; a part has at least four panels to be worth copying rows
  // for.
  const std::int64_t most_panels = (panels + members - 1) / members;
  const bool by_rows = rows >= 16 * members && most_panels * members * 8 > panels * 9;
  const std::int64_t fewest = (by_rows ? rows / 56 : panels / 4) / members * members;
  const auto parts = static_cast<int>(std::clamp<std::int64_t>(fewest, members, 8 * members));
  std::atomic<int> next{0};
  pool_.run([&](int member) {
    GemmJob part = job;
    part.scratch = scratch(member);
    for (int i = next.fetch_add(1); i < parts; i = next.fetch_add(1)) {
      const Range range = split_evenly(by_rows ? rows : panels, i, parts);
      if (range.begin == range.end) continue;
      (by_rows ? part.row_begin : part.panel_begin) = range.begin;
      (by_rows ? part.row_end : part.panel_end) = range.end;
      kernels_.gemm(part);
    }
  });
}

void CpuOps::norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                             float eps, const Tensor& rope, const AttentionShape& shape,
                             const AttentionBatch& batch, const KvLayer& cache,
                             const Tensor& q_out) {
  NormRopeStoreJob job;
  job.qkv = qkv.as<float>();
  job.q_norm = q_norm.empty() ? nullptr : q_norm.as<float>();
  job.k_norm = k_norm.empty() ? nullptr : k_norm.as<float>();
  job.eps = eps;
  job.rope = rope.as<float>();
  job.shape = shape;
  job.positions = batch.positions.as<std::int32_t>();
  job.kv_slots = batch.kv_slots.as<std::int32_t>();
  job.block_size = batch.block_size;
  job.keys = cache.keys.data();
  job.values = cache.values.data();
  job.dtype = cache.keys.dtype();
  job.q_out = q_out.as<float>();
  const std::int64_t tokens = batch.positions[0];
  for_rows(tokens, 4 * row_bytes(qkv), [&](std::int64_t begin, std::int64_t end, int) {
    NormRopeStoreJob part = job;
    part.begin = begin;
    part.end = end;
    kernels_.rows.norm_rope_store(part);
  });
}

void CpuOps::latent_rope_store(const Tensor& latent_q, const Tensor& rotated_q, const Tensor& kv,
                               const Tensor& norm, float eps, const Tensor& rope,
                               const AttentionShape& shape, const AttentionBatch& batch,
                               const KvLayer& cache, const Tensor& q_out) {
  LatentRopeStoreJob job;
  job.latent_q = latent_q.as<float>();
  job.rotated_q = rotated_q.as<float>();
  job.kv = kv.as<float>();
  job.norm = norm.as<float>();
  job.eps = eps;
  job.rope = rope.as<float>();
  job.shape = shape;
  job.positions = batch.positions.as<std::int32_t>();
  job.kv_slots = batch.kv_slots.as<std::int32_t>();
  job.block_size = batch.block_size;
  job.keys = cache.keys.data();
  job.dtype = cache.keys.dtype();
  job.q_out = q_out.as<float>();
  for_rows(batch.positions[0], 2 * row_bytes(q_out) + 4 * row_bytes(kv),
           [&](std::int64_t begin, std::int64_t end, int) {
             LatentRopeStoreJob part = job;
             part.begin = begin;
             part.end = end;
             kernels_.rows.latent_rope_store(part);
           });
}

void CpuOps::attention(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& out) {
  AttentionJob job;
  job.keys = cache.keys.data();
  job.values = cache.values.data();
  job.dtype = cache.keys.dtype();
  job.block_size = batch.block_size;
  job.shape = shape;
  const std::int64_t tile_rows = attention_tile_rows / (shape.heads / shape.kv_heads);
  const auto tiles_of = [&](const SequenceSpan& span) {
    return (span.rows + tile_rows - 1) / tile_rows;
  };
  std::atomic<std::int64_t> next{0};
  // Tiles are handed out one by one in a fixed numbering (sequence, KV head, tile from the last,
  // which is the longest); each member walks the spans along with its rising numbers.
  const auto work = [&](int member) {
    AttentionJob part = job;
    part.scratch = scratch(member);
    std::int64_t first = 0;  // number of the current span's first tile
    std::size_t s = 0;
    while (true) {
      const std::int64_t number = next.fetch_add(1, std::memory_order_relaxed);
      while (s < batch.sequences.size() &&
             number >= first + tiles_of(batch.sequences[s]) * shape.kv_heads) {
        first += tiles_of(batch.sequences[s]) * shape.kv_heads;
        ++s;
      }
      if (s == batch.sequences.size()) return;
      const SequenceSpan& span = batch.sequences[s];
      const std::int64_t tiles = tiles_of(span);
      const std::int64_t tile = tiles - 1 - (number - first) % tiles;
      const std::int64_t begin = tile * tile_rows;
      const std::int64_t row = span.first_row + begin;
      part.kv_head = (number - first) / tiles;
      part.q = q.as<float>() + row * shape.heads * shape.head_dim;
      part.out = out.as<float>() + row * shape.heads * shape.value_dim();
      part.rows = std::min<std::int64_t>(tile_rows, span.rows - begin);
      part.first_position = span.first_position + begin;
      part.blocks = batch.block_tables.as<std::int32_t>() + span.block_offset;
      kernels_.attention(part);
    }
  };
  std::int64_t positions = 0;
  for (const SequenceSpan& span : batch.sequences) {
    positions += std::int64_t{span.rows} * (span.first_position + span.rows);
  }
  if (pool_.size() == 1 || positions * shape.heads * shape.head_dim < parallel_bytes) {
    work(0);
  } else {
    pool_.run(work);
  }
}

void CpuOps::silu_mul(const Tensor& gate_up, const Tensor& out) {
  const std::int64_t inner = out[out.shape().rank() - 1];
  if (out.empty()) return;
  for_rows(out.elements() / inner, 2 * row_bytes(gate_up),
           [&](std::int64_t begin, std::int64_t end, int) {
             kernels_.rows.silu_mul(gate_up.as<float>() + 2 * begin * inner, end - begin, inner,
                                    out.as<float>() + begin * inner);
           });
}

void CpuOps::route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                   const Tensor& ids, const Tensor& weights) {
  const std::int64_t experts = logits[1];
  const float* bias_of = bias.empty() ? nullptr : bias.as<float>();
  reserve_scratch(route_scratch_floats(experts));
  const std::int64_t bytes = row_bytes(logits) * (2 + 2 * options.top_k);
  for_rows(logits[0], bytes, [&](std::int64_t begin, std::int64_t end, int member) {
    kernels_.rows.route(logits.as<float>() + begin * experts, bias_of, end - begin, experts,
                        options, ids.as<std::int32_t>() + begin * options.top_k,
                        weights.as<float>() + begin * options.top_k, scratch(member));
  });
}

void CpuOps::permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
  const std::int64_t experts = batch.offsets.elements() - 1, pairs = ids.elements();
  const std::int32_t* id = ids.as<std::int32_t>();
  std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  std::int32_t* source = batch.source.as<std::int32_t>();
  std::fill_n(offsets, experts + 1, 0);
  const auto local = [&](std::int64_t i) {
    const std::int64_t expert = id[i] - first_expert;
    return expert >= 0 && expert < experts ? expert : -1;
  };
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (const std::int64_t expert = local(i); expert >= 0) ++offsets[expert + 1];
  }
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as expert e's cursor and ends where e + 1 begins; one shift restores them.
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (const std::int64_t expert = local(i); expert >= 0) {
      source[offsets[expert]++] = static_cast<std::int32_t>(i);
    }
  }
  for (std::int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

void CpuOps::grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                            std::int64_t top_k, bool gather, bool scatter, const Tensor& out) {
  const PackedWeights& packed = static_cast<const CpuGroupedLinear&>(weights).packed();
  const std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  const std::int32_t* source = batch.source.as<std::int32_t>();
  const std::int64_t experts = packed.matrices(), panels = packed.panels_per_matrix();
  const std::int64_t rows = offsets[experts];
  if (rows == 0) return;
  const int members = pool_.size();
  // Parts of about equal work, handed out one by one: an expert's panels in `parts` shares.
  const std::int64_t parts = members == 1 ? 1 : std::min<std::int64_t>(panels, 4);
  std::atomic<std::int64_t> next{0};
  const auto work = [&](int member) {
    for (;;) {
      const std::int64_t number = next.fetch_add(1, std::memory_order_relaxed);
      if (number >= experts * parts) return;
      const std::int64_t expert = number / parts;
      if (offsets[expert] == offsets[expert + 1]) continue;
      const Range range =
          split_evenly(panels, static_cast<int>(number % parts), static_cast<int>(parts));
      GemmJob job = packed.job(expert);
      job.x = x.as<float>();
      job.out = out.as<float>();
      job.gather = gather ? source : nullptr;
      job.gather_divisor = top_k;
      job.scatter = scatter ? source : nullptr;
      job.row_begin = offsets[expert];
      job.row_end = offsets[expert + 1];
      job.panel_begin = range.begin;
      job.panel_end = range.end;
      job.scratch = scratch(member);
      kernels_.gemm(job);
    }
  };
  const std::int64_t touched =
      std::min(rows, experts) * static_cast<std::int64_t>(packed.bytes()) / experts;
  if (members == 1 || std::max(touched, rows * packed.n() * packed.k() / 10) < parallel_bytes) {
    work(0);
  } else {
    pool_.run(work);
  }
}

void CpuOps::combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  const std::int64_t top_k = weights[1], width = out[1];
  for_rows(out[0], row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    kernels_.rows.combine(x.as<float>() + begin * top_k * width,
                          weights.as<float>() + begin * top_k, end - begin, top_k, width,
                          out.as<float>() + begin * width);
  });
}

void CpuOps::tree_sum(const Tensor& x, const Tensor& out) {
  if (out.empty()) return;
  const auto parts = static_cast<int>(x[0] / out[0]);
  const auto width = static_cast<std::size_t>(out[1]);
  const auto stride = static_cast<std::size_t>(out.elements());
  for_rows(out[0], row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t first = static_cast<std::size_t>(begin) * width;
    troupe::tree_sum(x.as<float>() + first, parts, stride, out.as<float>() + first,
                     static_cast<std::size_t>(end - begin) * width);
  });
}

void CpuOps::gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
  if (out.empty()) return;
  const auto width = static_cast<std::int64_t>(out.bytes()) / rows[0];
  const auto* source = static_cast<const char*>(x.data());
  auto* target = static_cast<char*>(out.data());
  for_rows(rows[0], 2 * row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(target + i * width, source + rows.as<std::int32_t>()[i] * width,
                  static_cast<std::size_t>(width));
    }
  });
}

}  // namespace

Result<std::unique_ptr<Ops>> make_cpu_ops(const CpuOpsOptions& options) {
  if (options.threads < 1) {
    return fail(ErrorCode::invalid_argument, "{} threads for the CPU's kernels: at least 1",
                options.threads);
  }
  if (options.dtype != DType::f32 && options.dtype != DType::bf16) {
    return fail(ErrorCode::invalid_argument, "model dtype {} on the CPU: use f32 or bf16",
                to_string(options.dtype));
  }
  CpuIsa isa = options.isa;
  if (isa == CpuIsa::best) isa = cpu_supports(CpuIsa::avx512) ? CpuIsa::avx512 : CpuIsa::avx2;
  if (!cpu_supports(isa)) {
    return fail(ErrorCode::unsupported, "this CPU has no {}",
                isa == CpuIsa::avx512 ? "AVX-512 (F, BW, DQ, VL)" : "AVX2 with FMA");
  }
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(options, kernels_for(isa)));
}

}  // namespace troupe
