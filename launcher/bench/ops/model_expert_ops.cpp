// Routing and experts. Tokens choose different experts, all equally likely.
#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "launcher/bench/ops/model_ops.hpp"

namespace troupe {
namespace {

/// In passes with at most this many rows, experts are measured as one operation.
constexpr std::int64_t max_few_rows = 8;

HostTensor chosen_experts(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
  HostTensor ids(DType::i32, {tokens, top_k});
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  std::minstd_rand engine(1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < top_k; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const auto other = engine() % static_cast<std::uint64_t>(experts - c);
      std::swap(all[at], all[at + other]);
      ids->as<std::int32_t>()[t * top_k + c] = all[at];
    }
  }
  return ids;
}

std::int64_t experts_met(const Tensor& ids, std::int64_t experts) {
  std::vector<bool> met(static_cast<std::size_t>(experts));
  for (const std::int32_t id : ids.span<std::int32_t>()) met[static_cast<std::size_t>(id)] = true;
  return std::ranges::count(met, true);
}

}  // namespace

Result<void> ModelOps::measure_routing(OpsFigures& figures) {
  const MoeConfig& moe = *model_.moe;
  const std::int64_t most = figures.rows.back(), count = sparse_layers();
  const RouterOptions options{.top_k = moe.top_k,
                              .normalize = moe.normalize_top_k,
                              .sigmoid = moe.scoring == RouterScoring::sigmoid,
                              .groups = moe.groups,
                              .top_groups = moe.top_groups,
                              .scale = static_cast<float>(moe.weight_scale)};
  const std::int64_t hidden = model_.hidden_size;
  TROUPE_TRY(const auto router, ops_.weights().prepare(random_weight({moe.experts, hidden}), 1,
                                                       WeightEncoding::plain));
  TROUPE_TRY(const DeviceTensor x, random(activation_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor logits, ops_.memory().allocate(DType::f32, {most, moe.experts}));
  TROUPE_TRY(const DeviceTensor ids, ops_.memory().allocate(DType::i32, {most, moe.top_k}));
  TROUPE_TRY(const DeviceTensor weights, ops_.memory().allocate(DType::f32, {most, moe.top_k}));
  TROUPE_TRY(const DeviceTensor offsets, ops_.memory().allocate(DType::i32, {moe.experts + 1}));
  TROUPE_TRY(const DeviceTensor source, ops_.memory().allocate(DType::i32, {most * moe.top_k}));
  TROUPE_TRY(const DeviceTensor counts, ops_.memory().allocate(DType::i64, {moe.experts}));
  const std::string shape = fmt::format("{} -> {} of {}", hidden, moe.top_k, moe.experts);
  for (const std::int64_t rows : figures.rows) {
    const ExpertChoices choices{ids->rows(0, rows), weights->rows(0, rows)};
    const ExpertBatch batch{offsets, source->rows(0, rows * moe.top_k)};
    TROUPE_CHECK(add(
        figures,
        {.op = "router",
         .shape = shape,
         .rows = rows,
         .count = count,
         .bytes = static_cast<double>(router->bytes()) + bytes_of({rows, hidden}, activation_) +
                  4 * bytes_of({rows, moe.top_k}, DType::i32),
         .operations = 2 * static_cast<double>(rows * moe.experts) * static_cast<double>(hidden)},
        [&](std::size_t) {
          ops_.moe().route_tokens(*router, x->rows(0, rows), logits->rows(0, rows), {}, options,
                                  choices, batch, counts);
        }));
  }
  return {};
}

Result<ModelOps::SharedMatrices> ModelOps::shared_matrices() {
  const std::int64_t hidden = model_.hidden_size;
  const std::int64_t inner = model_.moe->shared_intermediate_size / options_.tensor_ranks;
  SharedMatrices shared;
  TROUPE_TRY(shared.gate_up,
             ops_.weights().prepare(random_weight({2 * inner, hidden}), 1, options_.encoding));
  TROUPE_TRY(shared.down,
             ops_.weights().prepare(random_weight({hidden, inner}), 1, options_.encoding));
  TROUPE_TRY(shared.activated,
             ops_.memory().allocate(activation_, {max_tokens_with_shared_mlp, inner}));
  return shared;
}

Result<void> ModelOps::measure_experts(OpsFigures& figures) {
  const MoeConfig& moe = *model_.moe;
  const std::int64_t hidden = model_.hidden_size, top_k = moe.top_k, experts = moe.experts;
  const std::int64_t inner = moe.intermediate_size / options_.tensor_ranks;
  const std::int64_t most = figures.rows.back(), max_assignments = most * top_k;
  const auto prepare = [&](const Shape& shape) {
    const HostTensor one = random_weight(shape);
    return ops_.weights().prepare_grouped(
        std::vector<Tensor>(static_cast<std::size_t>(experts), one.view()), 1, options_.encoding);
  };
  TROUPE_TRY(const auto gate_up, prepare({2 * inner, hidden}));
  TROUPE_TRY(const auto down, prepare({hidden, inner}));
  TROUPE_TRY(const DeviceTensor x, random(activation_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor activated, random(activation_, {max_assignments, inner}));
  TROUPE_TRY(const DeviceTensor scratch,
             ops_.memory().allocate(activation_, {max_assignments, 2 * inner}));
  TROUPE_TRY(const DeviceTensor gated,
             ops_.memory().allocate(activation_, {max_assignments, inner}));
  TROUPE_TRY(const DeviceTensor expert_rows,
             ops_.memory().allocate(summed_, {max_assignments, hidden}));
  TROUPE_TRY(const DeviceTensor weights, random(DType::f32, {most, top_k}));
  TROUPE_TRY(const DeviceTensor out, ops_.memory().allocate(summed_, {most, hidden}));
  TROUPE_TRY(const DeviceTensor ids, ops_.memory().allocate(DType::i32, {most, top_k}));
  TROUPE_TRY(const DeviceTensor offsets, ops_.memory().allocate(DType::i32, {experts + 1}));
  TROUPE_TRY(const DeviceTensor source, ops_.memory().allocate(DType::i32, {max_assignments}));
  SharedMatrices shared;
  if (moe.shared_intermediate_size > 0 && !moe.gated_shared_expert) {
    TROUPE_TRY(shared, shared_matrices());
  }
  const HostTensor chosen = chosen_experts(most, top_k, experts);
  ops_.memory().upload(chosen, ids);
  TROUPE_CHECK(ops_.stream().synchronize());
  for (const std::int64_t rows : figures.rows) {
    const std::int64_t assignments = rows * top_k;
    const ExpertBatch batch{offsets, source->rows(0, assignments)};
    ops_.moe().permute(ids->rows(0, rows), 0, batch);
    const double met = static_cast<double>(experts_met(chosen->rows(0, rows), experts)) /
                       static_cast<double>(experts);
    const auto figure = [&](const char* op, const GroupedLinear& grouped) {
      const std::int64_t n = grouped.out_features(), k = grouped.in_features();
      return OpFigure{.op = op,
                      .shape = fmt::format("{} -> {}", k, n),
                      .rows = rows,
                      .count = sparse_layers(),
                      .bytes = met * static_cast<double>(grouped.bytes()),
                      .operations = 2 * static_cast<double>(assignments) * static_cast<double>(n) *
                                    static_cast<double>(k)};
    };
    if (rows <= max_few_rows) {
      // Measured as one: a device may have a fused path for it.
      OpFigure both = figure("experts", *gate_up);
      both.bytes += met * static_cast<double>(down->bytes());
      both.operations *= 1.5;
      const bool adds_shared = ops_.moe().adds_shared_mlp(shared.mlp(), *down, rows, top_k);
      if (adds_shared) {
        both.op = "experts, shared";
        std::erase_if(figures.ops, [&](const OpFigure& apart) {
          return apart.rows == rows && apart.op.starts_with("shared ");
        });
        both.bytes += static_cast<double>(shared.gate_up->bytes() + shared.down->bytes());
        both.operations += 2 * static_cast<double>(rows * hidden) *
                           static_cast<double>(3 * shared.down->in_features());
      }
      const ExpertChoices choices{ids->rows(0, rows), weights->rows(0, rows)};
      const ExpertScratch space{scratch->rows(0, assignments), gated->rows(0, assignments),
                                expert_rows->rows(0, assignments),
                                adds_shared ? shared.activated->rows(0, rows) : Tensor()};
      TROUPE_CHECK(add(figures, std::move(both), [&](std::size_t) {
        ops_.moe().expert_mlp(*gate_up, *down, x->rows(0, rows), choices, batch, space,
                              out->rows(0, rows), adds_shared ? shared.mlp() : SharedMlp());
      }));
      continue;
    }
    OpFigure upper = figure("experts' gates", *gate_up);
    upper.bytes +=
        bytes_of({assignments, hidden}, activation_) + bytes_of({assignments, inner}, activation_);
    TROUPE_CHECK(add(figures, std::move(upper), [&](std::size_t) {
      ops_.moe().grouped_gate_up(*gate_up, x->rows(0, rows), batch, top_k,
                                 scratch->rows(0, assignments), gated->rows(0, assignments));
    }));
    OpFigure lower = figure("experts' down", *down);
    lower.bytes +=
        bytes_of({assignments, inner}, activation_) + bytes_of({assignments, hidden}, summed_);
    TROUPE_CHECK(add(figures, std::move(lower), [&](std::size_t) {
      ops_.moe().grouped_linear(*down, activated->rows(0, assignments), batch, top_k, false, true,
                                expert_rows->rows(0, assignments));
    }));
    TROUPE_CHECK(
        add(figures,
            {.op = "combine",
             .shape = fmt::format("{} x {}", top_k, hidden),
             .rows = rows,
             .count = sparse_layers(),
             .bytes = bytes_of({assignments, hidden}, summed_) + bytes_of({rows, hidden}, summed_)},
            [&](std::size_t) {
              ops_.moe().combine(expert_rows->rows(0, assignments), weights->rows(0, rows),
                                 out->rows(0, rows));
            }));
  }
  return {};
}

}  // namespace troupe
