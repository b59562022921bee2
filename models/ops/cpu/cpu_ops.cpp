#include "models/ops/cpu/cpu_ops.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "models/ops/cpu/cpu_ops_class.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

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
  // A GEMM is bound by its weights (about 10 bytes a nanosecond) or by its FMAs (about 100 a
  // nanosecond).
  const std::int64_t work =
      std::max(static_cast<std::int64_t>(packed.bytes()), rows * packed.n() * packed.k() / 10);
  const int members = pool_.size();
  if (members == 1 || work < parallel_bytes) {
    job.scratch = scratch(0);
    kernels_.gemm(job);
    return;
  }
  // Many rows are split, so that each is copied into tiles once; otherwise columns, unless there
  // are too few panels to share evenly. Parts are handed out one by one, so that a member delayed
  // by other users of its core costs one part and not half of the work; a part has at least four
  // panels to be worth copying rows for.
  const std::int64_t max_panels = (panels + members - 1) / members;
  const bool uneven = max_panels * members * 8 > panels * 9;
  const bool by_rows = rows >= (uneven ? 16 : 128) * members;
  const std::int64_t fewest =
      (by_rows ? rows / (uneven ? 56 : 128) : panels / 4) / members * members;
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

void CpuOps::silu_mul(const Tensor& gate_up, const Tensor& out) {
  const std::int64_t inner = out[out.shape().rank() - 1];
  if (out.empty()) return;
  for_rows(out.elements() / inner, 2 * row_bytes(gate_up),
           [&](std::int64_t begin, std::int64_t end, int) {
             kernels_.rows.silu_mul(gate_up.as<float>() + 2 * begin * inner, end - begin, inner,
                                    out.as<float>() + begin * inner);
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

void CpuOps::resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) {
  const auto* from = chosen.as<std::int32_t>();
  for (std::int32_t& id : ids.span<std::int32_t>()) {
    if (id < 0) id = std::max(from[-1 - id], 0);
  }
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

void CpuOps::concat_columns(const Tensor& parts, const Tensor& out) {
  if (out.empty()) return;
  const std::int64_t rows = out[0];
  const std::size_t row = out.bytes() / static_cast<std::size_t>(rows);
  const std::size_t width = parts.bytes() / static_cast<std::size_t>(parts[0]);
  const auto* source = static_cast<const char*>(parts.data());
  auto* target = static_cast<char*>(out.data());
  for_rows(rows, 2 * row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      char* const to = target + static_cast<std::size_t>(r) * row;
      for (std::size_t done = 0, part = 0; done < row; done += width, ++part) {
        const std::size_t from =
            part * static_cast<std::size_t>(rows) + static_cast<std::size_t>(r);
        std::memcpy(to + done, source + from * width, std::min(width, row - done));
      }
    }
  });
}

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
