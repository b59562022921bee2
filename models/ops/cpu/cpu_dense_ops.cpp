#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "models/ops/cpu/cpu_components.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {

void CpuDenseOps::do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                           const Tensor& out) {
  const std::int64_t vocab = table[0], width = table[1];
  const auto* bytes = static_cast<const char*>(table.data());
  const std::int64_t stride = width * static_cast<std::int64_t>(size_of(table.dtype()));
  context_.for_rows(ids[0], row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = ids.as<std::int32_t>()[i] - vocab_begin;
      float* target = out.as<float>() + i * width;
      if (row < 0 || row >= vocab) {
        std::memset(target, 0, static_cast<std::size_t>(width) * sizeof(float));
      } else {
        context_.kernels().rows.widen_row(bytes + row * stride, table.dtype(), width, target);
      }
    }
  });
}

void CpuDenseOps::do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                              const Linear* /*next*/) {
  const std::int64_t width = weight[0];
  context_.for_rows(
      x.elements() / width, row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
        context_.kernels().rows.rms_norm(x.as<float>() + begin * width, weight.as<float>(), eps,
                                         end - begin, width, out.as<float>() + begin * width);
      });
}

void CpuDenseOps::do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                  float eps, const Tensor& out, const Linear* /*next*/) {
  const std::int64_t width = weight[0];
  context_.for_rows(
      x.elements() / width, 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
        const std::int64_t at = begin * width;
        context_.kernels().rows.add_rms_norm(residual.as<float>() + at, x.as<float>() + at,
                                             weight.as<float>(), eps, end - begin, width,
                                             out.as<float>() + at);
      });
}

void CpuDenseOps::do_add(const Tensor& residual, const Tensor& x) {
  const auto row_bytes_of_both = static_cast<std::int64_t>(2 * sizeof(float));
  context_.for_rows(x.elements(), row_bytes_of_both,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      auto* sum = residual.as<float>();
                      const auto* add = x.as<float>();
                      for (std::int64_t i = begin; i < end; ++i) sum[i] += add[i];
                    });
}

void CpuDenseOps::do_add_bias(const Tensor& x, const Tensor& bias) {
  const std::int64_t width = bias[0];
  context_.for_rows(x.elements() / width, 2 * row_bytes(x),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      context_.kernels().rows.add_bias(x.as<float>() + begin * width,
                                                       bias.as<float>(), end - begin, width);
                    });
}

void CpuDenseOps::do_linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  const PackedWeights& packed = static_cast<const CpuLinear&>(weight).packed();
  const std::int64_t rows = x.elements() / packed.k(), panels = packed.panels_per_matrix();
  if (rows == 0) return;
  GemmJob job = packed.job(0);
  job.x = x.as<float>();
  job.out = out.as<float>();
  job.row_end = rows;
  job.peak = context_.peak();
  // A product streams its weights (about 10 bytes a nanosecond) or is bound by its FMAs (about 100
  // a nanosecond).
  const std::int64_t work =
      std::max(static_cast<std::int64_t>(packed.bytes()), rows * packed.n() * packed.k() / 10);
  const int members = context_.pool().size();
  if (members == 1 || work < parallel_bytes) {
    job.scratch = context_.scratch(0);
    context_.kernels().multiply(job);
    return;
  }
  // Many rows are split, so that each is copied into tiles once; else columns, unless there are too
  // few panels to share them out evenly. Parts are handed out one by one, so that a member that is
  // late, because others use its core, costs one part and not half of the work; a part has at least
  // four panels to be worth copying rows for.
  const std::int64_t max_panels = (panels + members - 1) / members;
  const bool uneven = max_panels * members * 8 > panels * 9;
  const bool by_rows = rows >= (uneven ? 16 : 128) * members;
  const std::int64_t fewest =
      (by_rows ? rows / (uneven ? 56 : 128) : panels / 4) / members * members;
  const auto parts = static_cast<int>(std::clamp<std::int64_t>(fewest, members, 8 * members));
  std::atomic<int> next{0};
  context_.pool().run([&](int member) {
    GemmJob part = job;
    part.scratch = context_.scratch(member);
    for (int i = next.fetch_add(1); i < parts; i = next.fetch_add(1)) {
      const Range range = split_evenly(by_rows ? rows : panels, i, parts);
      if (range.begin == range.end) continue;
      (by_rows ? part.row_begin : part.panel_begin) = range.begin;
      (by_rows ? part.row_end : part.panel_end) = range.end;
      context_.kernels().multiply(part);
    }
  });
}

void CpuDenseOps::do_silu_mul(const Tensor& gate_up, const Tensor& out) {
  const std::int64_t inner = out[out.shape().rank() - 1];
  if (out.empty()) return;
  context_.for_rows(out.elements() / inner, 2 * row_bytes(gate_up),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      context_.kernels().rows.silu_mul(gate_up.as<float>() + 2 * begin * inner,
                                                       end - begin, inner,
                                                       out.as<float>() + begin * inner);
                    });
}

void CpuDenseOps::do_activate(const Tensor& x, Activation activation, const Tensor& out) {
  if (out.empty()) return;
  const std::int64_t inner = out[out.shape().rank() - 1],
                     width = x.elements() / out.elements() * inner;
  context_.for_rows(out.elements() / inner, 2 * row_bytes(x),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      const float* from = x.as<float>() + begin * width;
                      float* to = out.as<float>() + begin * inner;
                      if (activation != Activation::gelu) {
                        context_.kernels().rows.activate(from, activation, end - begin, inner, to);
                        return;
                      }
                      for (std::int64_t i = 0; i < (end - begin) * inner; ++i) {
                        to[i] = 0.5F * from[i] * (1.0F + std::erf(from[i] * 0.70710678F));
                      }
                    });
}

void CpuDenseOps::do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                float eps, const Tensor& out) {
  const std::int64_t width = weight[0];
  context_.for_rows(
      x.elements() / width, 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
        context_.kernels().rows.layer_norm(x.as<float>() + begin * width, weight.as<float>(),
                                           bias.empty() ? nullptr : bias.as<float>(), eps,
                                           end - begin, width, out.as<float>() + begin * width);
      });
}

void CpuDenseOps::do_scale(const Tensor& x, float factor, float soft_cap) {
  if (x.empty()) return;
  const std::int64_t width = x.elements() / x[0];
  context_.for_rows(x[0], 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    context_.kernels().rows.scale(x.as<float>() + begin * width, factor, soft_cap,
                                  (end - begin) * width);
  });
}

void CpuDenseOps::do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) {
  if (x.empty()) return;
  const std::int64_t width = x.elements() / x[0];
  context_.for_rows(x[0], 2 * row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float logit = context_.kernels().rows.dot(input.as<float>() + row * weight[0],
                                                      weight.as<float>(), weight[0]);
      const float factor = 1.0F / (1.0F + std::exp(-logit));
      context_.kernels().rows.scale(x.as<float>() + row * width, factor, 0.0F, width);
    }
  });
}

void CpuDenseOps::do_tree_sum(const Tensor& x, const Tensor& out) {
  if (out.empty()) return;
  const auto parts = static_cast<int>(x[0] / out[0]);
  const auto width = static_cast<std::size_t>(out[1]);
  const auto stride = static_cast<std::size_t>(out.elements());
  context_.for_rows(out[0], row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t first = static_cast<std::size_t>(begin) * width;
    troupe::tree_sum(x.as<float>() + first, parts, stride, out.as<float>() + first,
                     static_cast<std::size_t>(end - begin) * width);
  });
}

void CpuDenseOps::do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
  if (out.empty()) return;
  const auto width = static_cast<std::int64_t>(out.bytes()) / rows[0];
  const auto* source = static_cast<const char*>(x.data());
  auto* target = static_cast<char*>(out.data());
  context_.for_rows(rows[0], 2 * row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(target + i * width, source + rows.as<std::int32_t>()[i] * width,
                  static_cast<std::size_t>(width));
    }
  });
}

void CpuDenseOps::do_concat_columns(const Tensor& parts, const Tensor& out) {
  if (out.empty()) return;
  const std::int64_t rows = out[0];
  const std::size_t row = out.bytes() / static_cast<std::size_t>(rows);
  const std::size_t width = parts.bytes() / static_cast<std::size_t>(parts[0]);
  const auto* source = static_cast<const char*>(parts.data());
  auto* target = static_cast<char*>(out.data());
  context_.for_rows(rows, 2 * row_bytes(out), [&](std::int64_t begin, std::int64_t end, int) {
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

}  // namespace troupe
