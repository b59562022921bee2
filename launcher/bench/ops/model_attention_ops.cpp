// Attention and what writes its cache.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "launcher/bench/ops/model_ops.hpp"
#include "models/families/family.hpp"

namespace troupe {
namespace {

/// Sequences of a pass, their tables of pages anywhere in the cache, and where they write.
struct Sequences {
  std::vector<SequenceSpan> spans;
  std::vector<std::int32_t> numbers;  ///< of the spans
  std::vector<std::int32_t> table, positions, slots;
};

/// `rows` sequences of `context` tokens, of each the last; or prompts of up to `context` tokens.
Sequences make_sequences(std::int64_t rows, std::int64_t context, std::int32_t block_size,
                         bool decode) {
  Sequences all;
  const std::int64_t longest = decode ? context : std::min(rows, context);
  const std::int64_t count = decode ? rows : (rows + longest - 1) / longest;
  const std::int64_t pages = (longest + block_size - 1) / block_size;
  all.table.resize(static_cast<std::size_t>(count * pages));
  std::iota(all.table.begin(), all.table.end(), 0);
  std::ranges::shuffle(all.table, std::minstd_rand(1));
  for (std::int64_t s = 0, row = 0; s < count; ++s) {
    const std::int64_t length = decode ? 1 : std::min(longest, rows - row);
    const std::int64_t first = decode ? context - 1 : 0;
    const SequenceSpan span{static_cast<std::int32_t>(row), static_cast<std::int32_t>(length),
                            static_cast<std::int32_t>(first), static_cast<std::int32_t>(s * pages)};
    all.spans.push_back(span);
    all.numbers.insert(all.numbers.end(),
                       {span.first_row, span.rows, span.first_position, span.block_offset});
    for (std::int64_t p = first; p < first + length; ++p, ++row) {
      const auto page = all.table[static_cast<std::size_t>(s * pages + p / block_size)];
      all.positions.push_back(static_cast<std::int32_t>(p));
      all.slots.push_back(page * block_size + static_cast<std::int32_t>(p % block_size));
    }
  }
  return all;
}

Result<DeviceTensor> uploaded(Ops& ops, const std::vector<std::int32_t>& values,
                              const Shape& shape) {
  TROUPE_TRY(DeviceTensor device, ops.allocate(DType::i32, shape));
  const HostTensor host(DType::i32, shape);
  std::ranges::copy(values, host->as<std::int32_t>());
  ops.upload(host, device);
  TROUPE_CHECK(ops.synchronize());
  return device;
}

}  // namespace

Result<void> ModelOps::measure_attention(OpsFigures& figures) {
  for (const std::int64_t rows : figures.rows) TROUPE_CHECK(measure_attention(figures, rows));
  return {};
}

Result<void> ModelOps::measure_attention(OpsFigures& figures, std::int64_t rows) {
  const std::int64_t dim = model_.head_dim;
  const AttentionShape shape{.heads = heads_,
                             .kv_heads = kv_heads_,
                             .head_dim = dim,
                             .scale = 1.0F / std::sqrt(static_cast<float>(dim))};
  const bool decode = rows <= figures.max_decode_rows;
  const Sequences sequences = make_sequences(rows, figures.context, options_.block_size, decode);
  const auto count = std::ssize(sequences.spans), pages = std::ssize(sequences.table);
  const double kv_bytes =
      bytes_of({pages * options_.block_size, 2 * kv_heads_ * dim}, options_.dtype);
  std::vector<std::pair<DeviceTensor, DeviceTensor>> caches(turns(kv_bytes));
  for (auto& cache : caches) {
    TROUPE_TRY(cache, ops_.allocate_kv(pages, options_.block_size, shape, options_.dtype));
  }
  TROUPE_TRY(const DeviceTensor positions, uploaded(ops_, sequences.positions, {rows}));
  TROUPE_TRY(const DeviceTensor slots, uploaded(ops_, sequences.slots, {rows}));
  TROUPE_TRY(const DeviceTensor table, uploaded(ops_, sequences.table, {pages}));
  TROUPE_TRY(const DeviceTensor spans, uploaded(ops_, sequences.numbers, {count, 4}));
  TROUPE_TRY(const DeviceTensor rope, random(DType::f32, {figures.context, dim}));
  TROUPE_TRY(const DeviceTensor norm, random(DType::f32, {dim}));
  TROUPE_TRY(const DeviceTensor qkv, random(activation_, {rows, (heads_ + 2 * kv_heads_) * dim}));
  TROUPE_TRY(const DeviceTensor q, random(activation_, {rows, heads_ * dim}));
  TROUPE_TRY(const DeviceTensor out, ops_.allocate(activation_, {rows, heads_ * dim}));
  const bool capturable = decode && ops_.supports_graph(shape, options_.dtype);
  const AttentionBatch batch{.positions = positions,
                             .kv_slots = slots,
                             .block_tables = table,
                             .sequences = sequences.spans,
                             .block_size = options_.block_size,
                             .spans = spans,
                             .graph_captured = capturable};
  ops_.plan_attention(shape, batch);
  const auto layer = [&](std::size_t turn) {
    const auto& [keys, values] = caches[turn % caches.size()];
    return KvLayer{keys, values};
  };
  const bool norms = has_weight(family_of(model_.architecture), Parameter::query_norm);
  const Tensor head_norm = norms ? norm.view() : Tensor();
  const double q_bytes = bytes_of(q->shape(), activation_);
  OpFigure stored{.op = "rope and store",
                  .shape = fmt::format("{} + 2 x {} x {}", heads_, kv_heads_, dim),
                  .rows = rows,
                  .count = model_.layers,
                  .bytes = bytes_of(qkv->shape(), activation_) + q_bytes +
                           bytes_of({rows, 2 * kv_heads_ * dim}, options_.dtype)};
  TROUPE_CHECK(add(
      figures, std::move(stored),
      [&](std::size_t turn) {
        ops_.norm_rope_store(qkv, head_norm, head_norm, model_.rms_norm_eps, rope, shape, batch,
                             layer(turn), out);
      },
      capturable));
  double seen = 0, cached = 0;  // keys that queries meet, and keys that are read
  for (const SequenceSpan& span : sequences.spans) {
    const double first = span.first_position, length = span.rows;
    seen += length * first + length * (length + 1) / 2;
    cached += first + length;
  }
  OpFigure attended{.op = "attention",
                    .shape = fmt::format("{} / {} x {}", heads_, kv_heads_, dim),
                    .rows = rows,
                    .count = model_.layers,
                    .operations = 4 * seen * static_cast<double>(heads_ * dim)};
  attended.bytes = 2 * q_bytes + cached * bytes_of({2 * kv_heads_ * dim}, options_.dtype);
  return add(
      figures, std::move(attended),
      [&](std::size_t turn) { ops_.attention(q, shape, batch, layer(turn), out); }, capturable);
}

}  // namespace troupe
