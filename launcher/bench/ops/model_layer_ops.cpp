// The operations of a layer in turn: what they take together, beside the sum of each alone.
#include <utility>

#include "launcher/bench/ops/model_ops.hpp"
#include "launcher/bench/ops/pass_sequences.hpp"
#include "models/layers/attention/attention_shape.hpp"

namespace troupe {

Result<void> ModelOps::measure_layers(OpsFigures& figures) {
  if (model_.moe || model_.latent || !is_gated(model_.activation)) return {};
  std::vector<LayerMatrices> layers;
  double bytes = 0;
  do {
    LayerMatrices layer;
    const auto prepare = [&](std::unique_ptr<Linear>& matrix, const Matrix& of) -> Result<void> {
      TROUPE_TRY(matrix, ops_.weights().prepare(random_weight({of.n, of.k}), of.segments,
                                                options_.encoding));
      bytes += static_cast<double>(matrix->bytes());
      return {};
    };
    for (const Matrix& of : matrices()) {
      if (of.op == "qkv") TROUPE_CHECK(prepare(layer.qkv, of));
      if (of.op == "attention out") TROUPE_CHECK(prepare(layer.out, of));
      if (of.op == "gate and up") TROUPE_CHECK(prepare(layer.gate_up, of));
      if (of.op == "down") TROUPE_CHECK(prepare(layer.down, of));
    }
    layers.push_back(std::move(layer));
  } while (layers.size() < turns(bytes / static_cast<double>(layers.size())));
  for (const std::int64_t rows : figures.rows) {
    if (rows > figures.max_decode_rows) continue;
    TROUPE_TRY(const double seconds, measure_layer(figures, rows, layers));
    figures.layers.push_back({rows, seconds});
  }
  return {};
}

Result<double> ModelOps::measure_layer(const OpsFigures& figures, std::int64_t rows,
                                       std::span<const LayerMatrices> matrices) {
  const Sequences sequences =
      make_sequences(rows, figures.context, figures.prefix, options_.block_size, true);
  TROUPE_TRY(AttentionShape shape,
             attention_shape(model_, 0, {0, static_cast<int>(options_.tensor_ranks)}));
  shape.residual = options_.kv_residuals.of(0);
  const auto count = std::ssize(sequences.spans), pages = std::ssize(sequences.table);
  const std::int64_t hidden = model_.hidden_size, dim = shape.head_dim;
  std::vector<std::pair<DeviceTensor, DeviceTensor>> caches(matrices.size());
  for (auto& cache : caches) {
    TROUPE_TRY(cache,
               ops_.attention().allocate_kv(pages, options_.block_size, shape, options_.kv_dtype));
  }
  TROUPE_TRY(const DeviceTensor positions, uploaded(ops_, sequences.positions, {rows}));
  TROUPE_TRY(const DeviceTensor slots, uploaded(ops_, sequences.slots, {rows}));
  TROUPE_TRY(const DeviceTensor table, uploaded(ops_, sequences.table, {pages}));
  TROUPE_TRY(const DeviceTensor spans, uploaded(ops_, sequences.numbers, {count, 4}));
  TROUPE_TRY(const DeviceTensor rope, random(DType::f32, {figures.context, dim}));
  TROUPE_TRY(const DeviceTensor head_norm, random(DType::f32, {dim}));
  TROUPE_TRY(const DeviceTensor norm, random(DType::f32, {hidden}));
  TROUPE_TRY(const DeviceTensor residual, random(activation_, {rows, hidden}));
  TROUPE_TRY(const DeviceTensor update, random(summed_, {rows, hidden}));
  const auto room = [&](std::int64_t width) {
    return ops_.memory().allocate(activation_, {rows, width});
  };
  TROUPE_TRY(const DeviceTensor normed, room(hidden));
  TROUPE_TRY(const DeviceTensor qkv, room((heads_ + 2 * kv_heads_) * dim));
  TROUPE_TRY(const DeviceTensor query, room(heads_ * dim));
  TROUPE_TRY(const DeviceTensor attended, room(heads_ * dim));
  const std::int64_t inner = matrices.front().down->in_features();
  TROUPE_TRY(const DeviceTensor gate_up, room(2 * inner));
  TROUPE_TRY(const DeviceTensor activated, room(inner));
  const bool capturable = ops_.attention().supports_graph(shape, options_.kv_dtype);
  const AttentionBatch batch{.positions = positions,
                             .kv_slots = slots,
                             .block_tables = table,
                             .sequences = sequences.spans,
                             .block_size = options_.block_size,
                             .spans = spans,
                             .graph_captured = capturable};
  ops_.attention().plan(shape, batch);
  const bool norms = model_.query_key_norm == QueryKeyNorm::heads;
  const Tensor of_heads = norms ? head_norm.view() : Tensor();
  const float eps = model_.norm.eps;
  DenseOps& dense = ops_.dense();
  return timer_.time(
      [&](std::size_t turn) {
        const LayerMatrices& of = matrices[turn % matrices.size()];
        const auto& [keys, values] = caches[turn % caches.size()];
        const KvLayer cache{keys, values};
        dense.add_rms_norm(residual, update, norm, eps, normed, of.qkv.get());
        dense.linear(*of.qkv, normed, qkv);
        ops_.attention().norm_rope_store(qkv, of_heads, of_heads, eps, rope, shape, batch, cache,
                                         query);
        ops_.attention().attend(query, shape, batch, cache, attended);
        dense.linear(*of.out, attended, update);
        dense.add_rms_norm(residual, update, norm, eps, normed, of.gate_up.get());
        dense.linear_gate_up(*of.gate_up, normed, gate_up, activated, of.down.get());
        dense.linear(*of.down, activated, update);
      },
      capturable);
}

}  // namespace troupe
