#include "models/ops/op_checks.hpp"

#include <string_view>

#include "models/ops/attention_ops.hpp"
#include "models/ops/linear.hpp"
#include "models/ops/moe_ops.hpp"
#include "models/ops/sampling_ops.hpp"
#include "runtime/base/invariant.hpp"

namespace troupe::op_checks {
namespace {

void expect(std::string_view what, const Tensor& tensor, const Shape& shape, DType dtype) {
  require(check_shape(what, tensor, shape, dtype), "operation on a tensor");
}

/// As expect, for f32 and bf16: what activations and sums are.
void expect_floats(std::string_view what, const Tensor& tensor, const Shape& shape) {
  expect(what, tensor, shape, tensor.dtype() == DType::bf16 ? DType::bf16 : DType::f32);
}

void expect_columns(std::string_view what, const Columns& columns, const Shape& shape) {
  require(columns.first >= 0 && columns.first + columns.count <= columns.stride(),
          "operation on columns of a matrix");
  expect_floats(what, {nullptr, columns.dtype(), {columns.rows(), columns.count}}, shape);
}

void expect_none_or(std::string_view what, const Tensor& tensor, const Shape& shape) {
  if (!tensor.empty()) expect(what, tensor, shape, DType::f32);
}

/// `next`, if given, can be multiplied with `rows`.
void expect_next(std::string_view what, const Linear* next, const Tensor& rows) {
  if (next != nullptr) expect_floats(what, rows, {rows[0], next->in_features()});
}

void expect_ids(std::string_view what, const Tensor& tensor) {
  expect(what, tensor, {tensor.elements()}, DType::i32);
}

std::int64_t experts_of(const ExpertBatch& batch) { return batch.offsets.elements() - 1; }

void expect_sorted(const ExpertBatch& batch, std::int64_t assignments) {
  expect_ids("experts' offsets", batch.offsets);
  expect("experts' source", batch.source, {assignments}, DType::i32);
}

void expect_choices(const Tensor& ids, const Tensor& weights, std::int64_t tokens,
                    std::int64_t top_k) {
  expect("route: ids", ids, {tokens, top_k}, DType::i32);
  expect("route: weights", weights, {tokens, top_k}, DType::f32);
}

void expect_pass(const AttentionBatch& batch) {
  const std::int64_t tokens = batch.positions.elements();
  expect("attention: positions", batch.positions, {tokens}, DType::i32);
  expect("attention: kv_slots", batch.kv_slots, {tokens}, DType::i32);
  expect_ids("attention: block_tables", batch.block_tables);
}

void expect_cache(const AttentionShape& shape, const KvLayer& cache) {
  const Tensor& keys = cache.keys;
  require(keys.shape().rank() == 4 && keys[1] == shape.kv_heads &&
              keys.elements() % (shape.kv_heads * shape.row_layout(keys.dtype()).row_elements) == 0,
          "attention: keys of a cache are [blocks, kv_heads, ...] of allocate_kv");
  require(cache.values.empty() == (shape.latent > 0), "attention: only latent caches lack values");
}

}  // namespace

void copy(const Tensor& from, const Tensor& to) {
  require(from.dtype() == to.dtype() && from.elements() == to.elements(),
          "upload or download: as many elements of the same dtype on both sides");
}

void embed(const Tensor& table, const Tensor& ids, const Tensor& out) {
  expect_ids("embed: ids", ids);
  expect_floats("embed: out", out, {ids[0], table[1]});
}

void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out, const Linear* next) {
  expect("rms_norm: weight", weight, {weight.elements()}, DType::f32);
  expect_floats("rms_norm: x", x, {x[0], weight[0]});
  expect_floats("rms_norm: out", out, x.shape());
  expect_next("rms_norm: out for the next matrix", next, out);
}

void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& out,
                  const Linear* next) {
  add(residual, x);
  rms_norm(x, weight, out, next);
}

void add(const Tensor& residual, const Tensor& x) {
  expect_floats("add: residual", residual, x.shape());
}

void add_bias(const Tensor& x, const Tensor& bias) {
  expect("add_bias: bias", bias, {bias.elements()}, DType::f32);
  expect_floats("add_bias: x", x, {x[0], bias[0]});
}

void linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  expect_floats("linear: x", x, {x[0], weight.in_features()});
  expect_floats("linear: out", out, {x[0], weight.out_features()});
}

void linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch, const Tensor& out,
                    const Linear* next) {
  linear(weight, x, scratch);
  silu_mul(scratch, out);
  expect_next("linear_gate_up: out for the next matrix", next, out);
}

void silu_mul(const Tensor& gate_up, const Tensor& out) {
  expect_floats("silu_mul: gate_up", gate_up, {out[0], 2 * out[1]});
  expect_floats("silu_mul: out", out, {out[0], out[1]});
}

void activate(const Tensor& x, Activation activation, const Tensor& out) {
  expect_floats("activate: x", x, {out[0], is_gated(activation) ? 2 * out[1] : out[1]});
  expect_floats("activate: out", out, {out[0], out[1]});
}

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  rms_norm(x, weight, out);
  expect_none_or("layer_norm: bias", bias, {weight[0]});
}

void gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) {
  expect("gate_rows: weight", weight, {weight.elements()}, DType::f32);
  expect_floats("gate_rows: input", input, {x[0], weight[0]});
}

void tree_sum(const Tensor& x, const Tensor& out) {
  expect("tree_sum: out", out, {out[0], out[1]}, DType::f32);
  expect("tree_sum: x", x, {x[0], out[1]}, DType::f32);
  require(out[0] == 0 || x[0] % out[0] == 0, "tree_sum: x has whole parts of out's rows");
}

void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
  expect_ids("gather_rows: rows", rows);
  expect("gather_rows: out", out, {rows[0], x[1]}, x.dtype());
}

void concat_columns(const Tensor& parts, const Tensor& out) {
  require(parts.dtype() == out.dtype() && (out[0] == 0 || parts[0] % out[0] == 0),
          "concat_columns: parts have as many rows as out, and its dtype");
}

void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm,
                     const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                     const KvLayer& cache, const Tensor& q_out) {
  expect_pass(batch);
  expect_cache(shape, cache);
  const std::int64_t tokens = batch.positions[0], dim = shape.head_dim;
  expect_floats("norm_rope_store: qkv", qkv, {tokens, (shape.heads + 2 * shape.kv_heads) * dim});
  expect_none_or("norm_rope_store: q_norm", q_norm, {dim});
  expect_none_or("norm_rope_store: k_norm", k_norm, {dim});
  expect("norm_rope_store: rope", rope, {rope[0], dim}, DType::f32);
  expect_floats("norm_rope_store: q_out", q_out, {tokens, shape.heads * dim});
}

void latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out) {
  expect_pass(batch);
  expect_cache(shape, cache);
  const std::int64_t tokens = batch.positions[0], rotated = shape.head_dim - shape.latent;
  expect_columns("latent_rope_store: rotated_q", rotated_q, {tokens, shape.heads * rotated});
  expect_columns("latent_rope_store: kv", kv, {tokens, shape.head_dim});
  expect("latent_rope_store: norm", norm, {shape.latent}, DType::f32);
  expect("latent_rope_store: rope", rope, {rope[0], rotated}, DType::f32);
  expect_floats("latent_rope_store: q_out", q_out, {tokens, shape.heads * shape.head_dim});
}

void attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
            const KvLayer& cache, const Tensor& out) {
  expect_pass(batch);
  expect_cache(shape, cache);
  const std::int64_t tokens = batch.positions[0];
  expect_none_or("attend: sinks", shape.sinks, {shape.heads});
  expect_floats("attend: q", q, {tokens, shape.heads * shape.head_dim});
  expect_floats("attend: out", out, {tokens, shape.heads * shape.value_dim()});
}

void kv_rows(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
             const Tensor& rows) {
  expect_cache(shape, cache);
  expect("kv_rows: slots", slots, {rows[0]}, DType::i32);
  const auto elements = [&](const Tensor& pages) {
    return pages.empty() ? 0 : shape.kv_heads * shape.row_layout(pages.dtype()).row_elements;
  };
  expect("kv_rows: rows", rows, {slots[0], elements(cache.keys) + elements(cache.values)},
         cache.keys.dtype());
}

void accumulate_weights(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                        const KvLayer& cache) {
  expect_cache(shape, cache);
  expect_floats("accumulate_weights: q", q, {q[0], shape.heads * shape.head_dim});
  expect("accumulate_weights: kv_slots", batch.kv_slots, {q[0]}, DType::i32);
  expect("accumulate_weights: weights", cache.weights,
         {cache.keys[0], shape.kv_heads, batch.block_size}, DType::f32);
}

void index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                      const AttentionShape& shape, const AttentionBatch& batch) {
  const std::int64_t tokens = batch.positions[0];
  expect_floats("index_rope_store: query", index.query,
                {tokens, shape.index.heads * shape.index.dim});
  expect_floats("index_rope_store: weights", index.weights, {tokens, shape.index.heads});
  expect_floats("index_rope_store: key", key, {tokens, shape.index.dim});
  expect("index_rope_store: rope", rope, {rope[0], shape.head_dim - shape.latent}, DType::f32);
}

void compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
             const KvLayer& cache) {
  expect_cache(shape, cache);
  if (compaction.turns_keys) {
    expect("compact: rope", rope, {rope[0], shape.head_dim - shape.latent}, DType::f32);
  }
  if (compaction.by_weight) {
    expect("compact: weights", cache.weights,
           {cache.keys[0], shape.kv_heads, compaction.block_size}, DType::f32);
  }
}

void square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums) {
  expect_floats("square_sums: qkv", qkv,
                {qkv[0], (shape.heads + 2 * shape.kv_heads) * shape.head_dim});
  expect("square_sums: sums", sums, {qkv[0], shape.heads + shape.kv_heads}, DType::f32);
}

void norm_projections(const Tensor& qkv, const AttentionShape& shape, const ProjectionNorm& norm) {
  const std::int64_t heads = shape.heads + shape.kv_heads;
  expect_floats("norm_projections: qkv", qkv, {qkv[0], (heads + shape.kv_heads) * shape.head_dim});
  expect("norm_projections: square_sums", norm.square_sums, {norm.ranks * qkv[0], heads},
         DType::f32);
  expect("norm_projections: q_weight", norm.q_weight, {shape.heads * shape.head_dim}, DType::f32);
  expect("norm_projections: k_weight", norm.k_weight, {shape.kv_heads * shape.head_dim},
         DType::f32);
}

void add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) {
  expect("add_expert_bias: bias", bias, {experts_of(batch), bias[1]}, DType::f32);
  expect_floats("add_expert_bias: x", x, {batch.source.elements(), bias[1]});
}

void add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                     const Tensor& out) {
  expect_choices(ids, weights, out[0], ids[1]);
  expect("add_chosen_bias: bias", bias, {bias[0], out[1]}, DType::f32);
  expect_floats("add_chosen_bias: out", out, out.shape());
}

void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
           const Tensor& ids, const Tensor& weights) {
  expect("route: logits", logits, {logits[0], logits[1]}, DType::f32);
  expect_none_or("route: bias", bias, {logits[1]});
  expect_choices(ids, weights, logits[0], options.top_k);
}

void permute(const Tensor& ids, const ExpertBatch& batch) {
  expect("permute: ids", ids, {ids[0], ids[1]}, DType::i32);
  expect_sorted(batch, ids.elements());
}

void count_rows(const ExpertBatch& batch, const Tensor& counts) {
  expect("count_rows: counts", counts, {experts_of(batch)}, DType::i64);
}

void permute_received(const Tensor& ids, const Tensor& received_counts, const ExpertBatch& batch,
                      const Tensor& counts) {
  permute(ids, batch);
  count_rows(batch, counts);
  expect_ids("permute_received: received_counts", received_counts);
  require(ids[0] % received_counts[0] == 0, "permute_received: ids are in equal parts");
}

void route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts) {
  route(logits, bias, options, choices.ids, choices.weights);
  permute(choices.ids, batch);
  count_rows(batch, counts);
}

void route_tokens(const Linear& router, const Tensor& x, const Tensor& logits, const Tensor& bias,
                  const RouterOptions& options, const ExpertChoices& choices,
                  const ExpertBatch& batch, const Tensor& counts) {
  linear(router, x, logits);
  route_and_permute(logits, bias, options, choices, batch, counts);
}

void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                    bool gather, const Tensor& out) {
  const std::int64_t assignments = batch.source.elements();
  expect_sorted(batch, assignments);
  require(experts_of(batch) == weights.experts(), "grouped_linear: a matrix for each expert");
  const Shape shape{gather ? x[0] : assignments, weights.in_features()};
  if (!gather || batch.scales.empty()) {
    expect_floats("grouped_linear: x", x, shape);
  } else {
    expect("grouped_linear: codes", x, shape, DType::u8);
    expect("grouped_linear: scales", batch.scales, {x[0]}, DType::f32);
  }
  expect_floats("grouped_linear: out", out, {assignments, weights.out_features()});
}

void heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) {
  const std::int64_t heads = weights.experts();
  expect_columns("heads_linear: x", x, {out[0], heads * weights.in_features()});
  expect_floats("heads_linear: out", out, {out[0], out[1]});
  require(out[1] % heads == 0 && out[1] / heads >= weights.out_features(),
          "heads_linear: out has columns for each head");
}

void grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                     const Tensor& scratch, const Tensor& out) {
  grouped_linear(weights, x, batch, true, scratch);
  silu_mul(scratch, out);
}

void combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  expect("combine: weights", weights, {out[0], weights[1]}, DType::f32);
  expect_floats("combine: x", x, {weights.elements(), out[1]});
  expect_floats("combine: out", out, {out[0], out[1]});
}

void expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                const ExpertChoices& choices, const ExpertBatch& batch,
                const ExpertScratch& scratch, const Tensor& out, const SharedMlp& shared) {
  if (shared.down != nullptr) {
    expect_floats("expert_mlp: shared", scratch.shared, {x[0], shared.down->in_features()});
  }
  grouped_gate_up(gate_up, x, batch, scratch.gate_up, scratch.activated);
  grouped_linear(down, scratch.activated, batch, false, scratch.rows);
  combine(scratch.rows, choices.weights, out);
}

void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) {
  expect_ids("resolve_sampled_ids: chosen", chosen);
  expect_ids("resolve_sampled_ids: ids", ids);
}

void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
            const Tensor& ids) {
  expect("sample: logits", logits, {logits[0], logits[1]}, DType::f32);
  if (!edited.empty()) expect_ids("sample: edited", edited);
  expect_ids("sample: ids", ids);
  for (const SampledRow& row : rows) {
    require(row.row >= 0 && row.row < logits[0] && row.row < ids[0],
            "sample: rows are of the logits and of the ids");
  }
}

void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
           const Tensor& scores) {
  expect("score: logits", logits, {logits[0], logits[1]}, DType::f32);
  expect_ids("score: ids", ids);
  require(scores.dtype() == DType::u8, "score: scores are bytes");
  for (const ScoredRow& row : rows) {
    require(row.row >= 0 && row.row < logits[0] &&
                (row.row + 1) * std::int64_t{sizeof(RowScores)} <= scores.elements(),
            "score: rows are of the logits and of the scores");
  }
}

}  // namespace troupe::op_checks
