#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <span>

#include "models/ops/cpu/cpu_components.hpp"

namespace troupe {
namespace {

/// Sorts the assignments of ids, which are in equal parts; only the first received_counts[p] rows
/// of part p count.
void sort_assignments(const Tensor& ids, std::span<const std::int32_t> received_counts,
                      std::int64_t first_expert, const ExpertBatch& batch) {
  const std::int64_t experts = batch.offsets.elements() - 1;
  const std::int64_t each = ids.elements() / std::ssize(received_counts);
  const std::int32_t* id = ids.as<std::int32_t>();
  std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  std::int32_t* source = batch.source.as<std::int32_t>();
  std::fill_n(offsets, experts + 1, 0);
  const auto for_each_local = [&](const auto& body) {
    for (std::int64_t part = 0; part < std::ssize(received_counts); ++part) {
      const std::int64_t begin = part * each;
      const std::int64_t end = begin + received_counts[static_cast<std::size_t>(part)] * ids[1];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t expert = id[i] - first_expert;
        if (expert >= 0 && expert < experts) body(expert, i);
      }
    }
  };
  for_each_local([&](std::int64_t expert, std::int64_t) { ++offsets[expert + 1]; });
  for (std::int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as expert e's cursor and ends where e + 1 begins; one shift restores them.
  for_each_local([&](std::int64_t expert, std::int64_t i) {
    source[offsets[expert]++] = static_cast<std::int32_t>(i);
  });
  for (std::int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

/// Multiplies `rows` rows in all by several matrices: job_of(m) says which by matrix m, and where
/// they are.
template <class JobOf>
void run_grouped(CpuContext& context, const PackedWeights& packed, std::int64_t rows,
                 const JobOf& job_of) {
  const std::int64_t matrices = packed.matrices(), panels = packed.panels_per_matrix();
  const int members = context.pool().size();
  // Parts of about equal work, handed out one by one: a matrix's panels in `parts` shares.
  const std::int64_t parts = members == 1 ? 1 : std::min<std::int64_t>(panels, 4);
  std::atomic<std::int64_t> next{0};
  const auto work = [&](int member) {
    for (;;) {
      const std::int64_t number = next.fetch_add(1, std::memory_order_relaxed);
      if (number >= matrices * parts) return;
      GemmJob job = job_of(number / parts);
      if (job.row_begin == job.row_end) continue;
      const Range range =
          split_evenly(panels, static_cast<int>(number % parts), static_cast<int>(parts));
      job.panel_begin = range.begin;
      job.panel_end = range.end;
      job.scratch = context.scratch(member);
      job.peak = context.peak();
      context.kernels().multiply(job);
    }
  };
  const std::int64_t touched =
      std::min(rows, matrices) * static_cast<std::int64_t>(packed.bytes()) / matrices;
  if (members == 1 || std::max(touched, rows * packed.n() * packed.k() / 10) < parallel_bytes) {
    work(0);
  } else {
    context.pool().run(work);
  }
}

}  // namespace

void CpuMoeOps::do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                         const Tensor& ids, const Tensor& weights) {
  const std::int64_t experts = logits[1];
  const float* bias_of = bias.empty() ? nullptr : bias.as<float>();
  context_.reserve_scratch(route_scratch_floats(experts));
  const std::int64_t bytes = row_bytes(logits) * (2 + 2 * options.top_k);
  context_.for_rows(logits[0], bytes, [&](std::int64_t begin, std::int64_t end, int member) {
    context_.kernels().rows.route(logits.as<float>() + begin * experts, bias_of, end - begin,
                                  experts, options, ids.as<std::int32_t>() + begin * options.top_k,
                                  weights.as<float>() + begin * options.top_k,
                                  context_.scratch(member));
  });
}

void CpuMoeOps::do_permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
  const auto all = static_cast<std::int32_t>(ids[0]);
  sort_assignments(ids, {&all, 1}, first_expert, batch);
}

void CpuMoeOps::do_permute_received(const Tensor& ids, const Tensor& received_counts,
                                    std::int64_t first_expert, const ExpertBatch& batch,
                                    const Tensor& counts) {
  sort_assignments(ids, received_counts.span<std::int32_t>(), first_expert, batch);
  count_rows(batch, counts);
}

void CpuMoeOps::do_count_rows(const ExpertBatch& batch, const Tensor& counts) {
  const std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  std::int64_t* count = counts.as<std::int64_t>();
  for (std::int64_t e = 0; e < counts.elements(); ++e) count[e] += offsets[e + 1] - offsets[e];
}

void CpuMoeOps::do_grouped_linear(const GroupedLinear& weights, const Tensor& x,
                                  const ExpertBatch& batch, std::int64_t top_k, bool gather,
                                  bool scatter, const Tensor& out) {
  const PackedWeights& packed = static_cast<const CpuGroupedLinear&>(weights).packed();
  const std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  const std::int32_t* source = batch.source.as<std::int32_t>();
  const std::int64_t rows = offsets[packed.matrices()];
  if (rows == 0) return;
  run_grouped(context_, packed, rows, [&](std::int64_t expert) {
    GemmJob job = packed.job(expert);
    job.x = x.as<float>();
    job.out = out.as<float>();
    job.gather = gather ? source : nullptr;
    job.gather_divisor = top_k;
    job.scatter = scatter ? source : nullptr;
    job.row_begin = offsets[expert];
    job.row_end = offsets[expert + 1];
    return job;
  });
}

void CpuMoeOps::do_heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) {
  const PackedWeights& packed = static_cast<const CpuGroupedLinear&>(weights).packed();
  const std::int64_t heads = packed.matrices();
  if (out[0] == 0) return;
  run_grouped(context_, packed, heads * out[0], [&](std::int64_t head) {
    GemmJob job = packed.job(head);
    job.x = static_cast<const float*>(x.data()) + head * packed.k();
    job.x_stride = x.stride();
    job.out = out.as<float>() + head * (out[1] / heads);
    job.out_stride = out[1];
    job.row_end = out[0];
    return job;
  });
}

void CpuMoeOps::do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) {
  const std::int64_t experts = bias[0], width = bias[1];
  const std::int32_t* offsets = batch.offsets.as<std::int32_t>();
  for (std::int64_t e = 0; e < experts; ++e) {
    context_.kernels().rows.add_bias(x.as<float>() + offsets[e] * width,
                                     bias.as<float>() + e * width, offsets[e + 1] - offsets[e],
                                     width);
  }
}

void CpuMoeOps::do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                                   const Tensor& out) {
  const std::int64_t top_k = ids[1], width = out[1];
  context_.for_rows(out[0], row_bytes(out) * top_k, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * top_k; i < end * top_k; ++i) {
      const float* from = bias.as<float>() + ids.as<std::int32_t>()[i] * width;
      const float weight = weights.as<float>()[i];
      float* to = out.as<float>() + i / top_k * width;
      for (std::int64_t c = 0; c < width; ++c) to[c] += weight * from[c];
    }
  });
}

void CpuMoeOps::do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  const std::int64_t top_k = weights[1], width = out[1];
  context_.for_rows(out[0], row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    context_.kernels().rows.combine(x.as<float>() + begin * top_k * width,
                                    weights.as<float>() + begin * top_k, end - begin, top_k, width,
                                    out.as<float>() + begin * width);
  });
}

void CpuMoeOps::do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                                 const Tensor& out) {
  const std::int64_t top_k = choices.ids[1], width = out[1];
  context_.for_rows(out[0], row_bytes(x), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int32_t* ids = choices.ids.as<std::int32_t>() + token * top_k;
      const float* weights = choices.weights.as<float>() + token * top_k;
      const float* rows = x.as<float>() + token * top_k * width;
      float* to = out.as<float>() + token * width;
      const auto is_local = [&](std::int32_t id) {
        return id >= choices.first_expert && id < choices.first_expert + local;
      };
      const std::int64_t found = std::count_if(ids, ids + top_k, is_local);
      if (found == top_k) {
        context_.kernels().rows.combine(rows, weights, 1, top_k, width, to);
        continue;
      }
      if (found == 0) std::fill_n(to, width, 0.0F);
      bool first = true;
      for (std::int64_t c = 0; c < top_k; ++c) {
        if (!is_local(ids[c])) continue;
        for (std::int64_t i = 0; i < width; ++i) {
          const float value = rows[c * width + i];
          to[i] = first ? value * weights[c] : std::fma(value, weights[c], to[i]);
        }
        first = false;
      }
    }
  });
}

}  // namespace troupe
