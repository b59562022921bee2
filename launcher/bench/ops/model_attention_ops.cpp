// Attention, and the operations that write its cache.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "launcher/bench/ops/model_ops.hpp"
#include "launcher/bench/ops/pass_sequences.hpp"
#include "models/families/family.hpp"
#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/cache_spec.hpp"

namespace troupe {

Result<void> ModelOps::measure_attention(OpsFigures& figures) {
  std::vector<CacheSpec> specs = cache_groups(model_);
  // Groups of one spec stand together.
  specs.erase(std::unique(specs.begin(), specs.end()), specs.end());
  for (const CacheSpec& spec : specs) {
    std::int64_t layers = 0, layer = 0;
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      if (cache_spec_of(model_, i) != spec) continue;
      layer = i;
      ++layers;
    }
    TROUPE_TRY(AttentionShape shape,
               attention_shape(model_, layer, {0, static_cast<int>(options_.tensor_ranks)}));
    shape.residual = options_.kv_residuals.of(layer);
    for (const std::int64_t rows : figures.rows) {
      TROUPE_CHECK(measure_attention(figures, shape, layers, rows, true));
    }
  }
  return {};
}

Result<void> ModelOps::measure(OpsFigures& figures, std::span<const BenchedAttention> attention) {
  TROUPE_CHECK(measure_ceilings(figures.ceilings));
  for (const BenchedAttention& one : attention) {
    AttentionShape shape{.heads = one.heads,
                         .kv_heads = one.kv_heads,
                         .head_dim = one.head_dim,
                         .scale = 1.0F / std::sqrt(static_cast<float>(one.head_dim)),
                         .window = one.window,
                         .soft_cap = one.soft_cap,
                         .residual = options_.kv_residuals.of(0)};
    DeviceTensor sinks;
    if (one.has_sinks) {
      TROUPE_TRY(sinks, random(DType::f32, {one.heads}));
      shape.sinks = sinks;
    }
    for (const std::int64_t rows : figures.rows) {
      TROUPE_CHECK(measure_attention(figures, shape, 1, rows, false));
    }
  }
  return {};
}

Result<void> ModelOps::measure_attention(OpsFigures& figures, const AttentionShape& shape,
                                         std::int64_t layers, std::int64_t rows, bool is_own) {
  const bool decode = rows <= figures.max_decode_rows;
  const Sequences sequences =
      make_sequences(rows, figures.context, figures.prefix, options_.block_size, decode);
  const auto count = std::ssize(sequences.spans), pages = std::ssize(sequences.table);
  const std::int64_t again =
      decode ? (rows - 1) * (figures.prefix / options_.block_size) : 0;  // pages met before
  const DType stored_in = options_.kv_dtype;
  const double kv_bytes = bytes_of(
      {(pages - again) * options_.block_size, shape.stored_elements(stored_in)}, stored_in);
  std::vector<std::pair<DeviceTensor, DeviceTensor>> caches(turns(kv_bytes));
  for (auto& cache : caches) {
    TROUPE_TRY(cache, ops_.attention().allocate_kv(pages, options_.block_size, shape, stored_in));
  }
  TROUPE_TRY(const DeviceTensor positions, uploaded(ops_, sequences.positions, {rows}));
  TROUPE_TRY(const DeviceTensor slots, uploaded(ops_, sequences.slots, {rows}));
  TROUPE_TRY(const DeviceTensor table, uploaded(ops_, sequences.table, {pages}));
  TROUPE_TRY(const DeviceTensor spans, uploaded(ops_, sequences.numbers, {count, 4}));
  TROUPE_TRY(const DeviceTensor q, random(activation_, {rows, shape.heads * shape.head_dim}));
  TROUPE_TRY(const DeviceTensor out,
             ops_.memory().allocate(activation_, {rows, shape.heads * shape.head_dim}));
  const bool capturable = decode && ops_.attention().supports_graph(shape, stored_in);
  AttentionBatch batch{.positions = positions,
                       .kv_slots = slots,
                       .block_tables = table,
                       .sequences = sequences.spans,
                       .block_size = options_.block_size,
                       .spans = spans,
                       .graph_captured = capturable};
  ops_.attention().plan(shape, batch);
  const auto layer = [&](std::size_t turn) {
    const auto& [keys, values] = caches[turn % caches.size()];
    return KvLayer{keys, values};
  };
  if (is_own && shape.latent == 0) {
    const std::int64_t dim = shape.head_dim;
    TROUPE_TRY(const DeviceTensor rope, random(DType::f32, {figures.context, dim}));
    TROUPE_TRY(const DeviceTensor norm, random(DType::f32, {dim}));
    TROUPE_TRY(const DeviceTensor qkv, random(activation_, {rows, (heads_ + 2 * kv_heads_) * dim}));
    const bool norms = model_.query_key_norm == QueryKeyNorm::heads;
    const Tensor head_norm = norms ? norm.view() : Tensor();
    OpFigure stored{.op = "rope and store",
                    .shape = fmt::format("{} + 2 x {} x {}", heads_, kv_heads_, dim),
                    .rows = rows,
                    .count = layers,
                    .bytes = bytes_of(qkv->shape(), activation_) +
                             bytes_of(q->shape(), activation_) +
                             bytes_of({rows, shape.stored_elements(stored_in)}, stored_in)};
    TROUPE_CHECK(add(
        figures, std::move(stored),
        [&](std::size_t turn) {
          ops_.attention().norm_rope_store(qkv, head_norm, head_norm, model_.norm.eps, rope, shape,
                                           batch, layer(turn), out);
        },
        capturable));
  }
  double seen = 0, cached = 0;  // keys that queries attend to, and keys that are read
  for (const SequenceSpan& span : sequences.spans) {
    const std::int64_t end = span.first_position + span.rows;
    const std::int64_t window = shape.window == 0 ? end : shape.window;
    for (std::int64_t p = span.first_position; p < end; ++p) {
      seen += static_cast<double>(std::min(p + 1, window));
    }
    cached += static_cast<double>(std::min<std::int64_t>(end, window + span.rows - 1));
  }
  std::string text = fmt::format("{} / {} x {}", shape.heads, shape.kv_heads, shape.head_dim);
  if (shape.window > 0) text += fmt::format(" in {}", shape.window);
  if (shape.soft_cap > 0.0F) text += " cap";
  if (!shape.sinks.empty()) text += " sinks";
  if (is_code(stored_in)) text += fmt::format(" {}", to_string(stored_in));
  if (shape.residual == KvResidual::keys) text += " + keys";
  if (shape.residual == KvResidual::all) text += " + all";
  OpFigure attended{.op = "attention",
                    .shape = std::move(text),
                    .rows = rows,
                    .count = layers,
                    .operations = 2 * seen * static_cast<double>(shape.heads) *
                                  static_cast<double>(shape.head_dim + shape.value_dim())};
  attended.bytes =
      bytes_of({rows, shape.heads * (shape.head_dim + shape.value_dim())}, activation_) +
      cached * bytes_of({shape.stored_elements(stored_in)}, stored_in);
  const Tensor attended_rows = out.view()
                                   .reshaped({rows * shape.heads * shape.head_dim})
                                   .rows(0, rows * shape.heads * shape.value_dim())
                                   .reshaped({rows, shape.heads * shape.value_dim()});
  const auto attend = [&](std::size_t turn) {
    ops_.attention().attend(q, shape, batch, layer(turn), attended_rows);
  };
  TROUPE_CHECK(add(figures, std::move(attended), attend, capturable));
  if (figures.prefix == 0) return {};
  batch.host_block_tables = sequences.table;
  if (ops_.attention().plan(shape, batch).shared_positions == 0) return {};
  TROUPE_TRY(figures.ops.back().cascade_seconds, timer_.time(attend, capturable));
  return {};
}

Result<void> ModelOps::measure_latent_heads(OpsFigures& figures) {
  const LatentConfig& latent = *model_.latent;
  const std::int64_t most = figures.rows.back();
  const auto measure = [&](const std::string& op, std::int64_t n, std::int64_t k) -> Result<void> {
    const HostTensor weight = random_weight({n, k});
    const std::vector<Tensor> weights(static_cast<std::size_t>(heads_), weight.view());
    const double weight_bytes = static_cast<double>(heads_) * static_cast<double>(weight->bytes());
    std::vector<std::unique_ptr<GroupedLinear>> copies(turns(weight_bytes));
    for (auto& copy : copies) {
      TROUPE_TRY(copy, ops_.weights().prepare_grouped(weights, 1, WeightEncoding::plain));
    }
    TROUPE_TRY(const DeviceTensor x, random(activation_, {most, heads_ * k}));
    TROUPE_TRY(const DeviceTensor out, ops_.memory().allocate(activation_, {most, heads_ * n}));
    for (const std::int64_t rows : figures.rows) {
      OpFigure figure{
          .op = op,
          .shape = fmt::format("{} x {} -> {}", heads_, k, n),
          .rows = rows,
          .count = model_.layers,
          .bytes = weight_bytes + bytes_of({rows * heads_, n + k}, activation_),
          .operations = 2 * static_cast<double>(rows * heads_) * static_cast<double>(n * k)};
      TROUPE_CHECK(add(figures, std::move(figure), [&](std::size_t turn) {
        ops_.moe().heads_linear(*copies[turn % copies.size()], x->rows(0, rows),
                                out->rows(0, rows));
      }));
    }
    return {};
  };
  TROUPE_CHECK(measure("heads' keys up", latent.rank, latent.unrotated_dim));
  return measure("heads' values up", latent.value_dim, latent.rank);
}

}  // namespace troupe
