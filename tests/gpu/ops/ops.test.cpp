// Every operation of the GPU beside the CPU's, on the same random inputs and odd shapes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/layers/attention/attention_metadata.hpp"
#include "parallel/device/convert.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

INSTANTIATE_TEST_SUITE_P(Dtypes, BothDevices, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(BothDevices, embed_rows_and_leave_others_zero) {
  const HostTensor table = random({37, 72});
  auto gpu_table = gpu_->prepare_table(table);
  auto cpu_table = cpu_->prepare_table(table);
  ASSERT_TRUE(gpu_table.ok() && cpu_table.ok());
  const HostTensor ids = integers({5, 99, 41, 4, 20}, {5});
  const HostTensor expected(DType::f32, {5, 72});
  cpu_->embed(*cpu_table, ids, 5, expected);
  const DeviceTensor out = room(GetParam(), {5, 72});
  gpu_->embed(*gpu_table, exact(ids), 5, out);
  expect_equal(out, expected, "embed");
}

TEST_P(BothDevices, normalise_rows) {
  for (const auto& [rows, width] : {std::pair{1, 16}, {3, 200}, {65, 1024}}) {
    const HostTensor x = random({rows, width}), weight = random({width}),
                     residual = random(x->shape());
    const HostTensor expected(DType::f32, x->shape());
    cpu_->rms_norm(x, weight, 1e-6F, expected);
    const DeviceTensor out = room(GetParam(), x->shape());
    gpu_->rms_norm(activation(x), exact(weight), 1e-6F, out);
    expect_equal(out, expected, "rms_norm");
    const DeviceTensor sum = activation(residual);
    gpu_->add_rms_norm(sum, exact(x), exact(weight), 1e-6F, out);
    cpu_->add_rms_norm(residual, x, weight, 1e-6F, expected);
    expect_equal(out, expected, "add_rms_norm");
    expect_equal(sum, residual, "add_rms_norm's residual");
    gpu_->add(sum, exact(x));
    cpu_->add(residual, x);
    expect_equal(sum, residual, "add");
  }
}

TEST_P(BothDevices, add_biases_and_gate) {
  const HostTensor x = random({7, 46}), bias = random({46}), expected(DType::f32, {7, 23});
  const DeviceTensor gpu_x = activation(x);
  gpu_->add_bias(gpu_x, exact(bias));
  cpu_->add_bias(x, bias);
  expect_equal(gpu_x, x, "add_bias");
  const DeviceTensor out = room(GetParam(), {7, 23});
  gpu_->silu_mul(gpu_x, out);
  cpu_->silu_mul(x, expected);
  expect_equal(out, expected, "silu_mul");
}

TEST_P(BothDevices, multiply) {
  for (const auto& [rows, n, k] :
       {std::tuple{1, 64, 64}, {5, 96, 256}, {64, 48, 704}, {300, 512, 96}}) {
    const HostTensor weight = random({n, k}, 0.1F), x = random({rows, k});
    auto gpu_weight = gpu_->prepare(weight, 1);
    auto cpu_weight = cpu_->prepare(weight, 1);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const HostTensor expected(DType::f32, {rows, n});
    cpu_->linear(**cpu_weight, x, expected);
    for (const DType out_dtype : {DType::f32, GetParam()}) {
      const DeviceTensor out = room(out_dtype, {rows, n});
      gpu_->linear(**gpu_weight, activation(x), out);
      expect_equal(out, expected, "linear");
    }
  }
}

TEST_P(BothDevices, store_and_attend) {
  struct Case {
    AttentionShape shape;
    bool norms;
  };
  const Case cases[] = {
      {{.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125F}, true},
      {{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F}, true},
      {{.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125F, .window = 33}, true},
      {{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F, .window = 100}, false},
      {{.heads = 6, .kv_heads = 1, .head_dim = 32, .scale = 0.2F}, false},
      {{.heads = 4, .kv_heads = 4, .head_dim = 16, .scale = 0.3F, .window = 24}, false},
      {{.heads = 3, .kv_heads = 1, .head_dim = 80, .scale = 0.1F, .latent = 64}, false},
      {{.heads = 16, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false},
      {{.heads = 5, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false},
      {{.heads = 80, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false}};
  for (const Case& c : cases) {
    const AttentionShape& shape = c.shape;
    // Two sequences: one of 200 positions with queries for the last 3, one of 40 with queries for
    // all, whose table is much longer than that.
    const std::int64_t dim = shape.head_dim, blocks = 13 + 150;
    std::vector<std::int32_t> table = shuffled(blocks);
    const HostTensor tables = integers(table, {blocks});
    auto cpu_kv = cpu_->allocate_kv(blocks, 16, shape, GetParam());
    auto gpu_kv = gpu_->allocate_kv(blocks, 16, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const std::int64_t rotated = shape.latent > 0 ? dim - shape.latent : dim;
    const HostTensor rope = random({256, rotated});
    const HostTensor q_norm = c.norms ? random({dim}) : HostTensor();
    const HostTensor k_norm = c.norms ? random({dim}) : HostTensor();
    const HostTensor latent_norm = random({std::max<std::int64_t>(shape.latent, 1)});
    const auto pass = [&](const std::vector<SequenceSpan>& spans) {
      std::vector<std::int32_t> positions, slots;
      for (const SequenceSpan& span : spans) {
        for (std::int32_t p = span.first_position; p < span.first_position + span.rows; ++p) {
          positions.push_back(p);
          const auto entry = static_cast<std::size_t>(std::int64_t{span.block_offset} + p / 16);
          slots.push_back(table[entry] * 16 + p % 16);
        }
      }
      const auto rows = static_cast<std::int64_t>(positions.size());
      const HostTensor at = integers(positions, {rows}), slot = integers(slots, {rows});
      const DeviceTensor gpu_at = exact(at), gpu_slot = exact(slot), gpu_tables = exact(tables);
      const AttentionBatch cpu_batch{at, slot, tables, spans, 16, {}};
      const DeviceTensor gpu_spans = exact(integers(numbers_of(spans), {std::ssize(spans), 4}));
      const AttentionBatch gpu_batch{gpu_at, gpu_slot, gpu_tables, spans, 16, gpu_spans};
      gpu_->plan_attention(shape, gpu_batch);
      const HostTensor q(DType::f32, {rows, shape.heads * dim});
      const HostTensor out(DType::f32, {rows, shape.heads * shape.value_dim()});
      const DeviceTensor gpu_q = room(GetParam(), q->shape()),
                         gpu_out = room(GetParam(), out->shape());
      if (shape.latent > 0) {
        const HostTensor latent_q = random({rows, shape.heads * shape.latent});
        const HostTensor rotated_q = random({rows, shape.heads * rotated}),
                         kv = random({rows, dim});
        cpu_->latent_rope_store(latent_q, rotated_q, kv, latent_norm, 1e-6F, rope, shape, cpu_batch,
                                cpu_layer, q);
        gpu_->latent_rope_store(activation(latent_q), activation(rotated_q), activation(kv),
                                exact(latent_norm), 1e-6F, exact(rope), shape, gpu_batch, gpu_layer,
                                gpu_q);
      } else {
        const HostTensor qkv = random({rows, (shape.heads + 2 * shape.kv_heads) * dim});
        cpu_->norm_rope_store(qkv, q_norm, k_norm, 1e-6F, rope, shape, cpu_batch, cpu_layer, q);
        gpu_->norm_rope_store(activation(qkv), exact(q_norm), exact(k_norm), 1e-6F, exact(rope),
                              shape, gpu_batch, gpu_layer, gpu_q);
      }
      expect_equal(gpu_q, q, "rope");
      cpu_->attention(q, shape, cpu_batch, cpu_layer, out);
      gpu_->attention(gpu_q, shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out, "attention");
      const Slice parts[] = {{0, 1}, {1, 0}, {1, rows / 2}, {1 + rows / 2, rows - 1 - rows / 2}};
      const AttentionMetadata cut(gpu_batch, parts);
      for (const AttentionBatch& part : cut.batches()) gpu_->plan_attention(shape, part);
      const DeviceTensor by_parts = room(GetParam(), out->shape());
      for (const Slice part : parts) {
        gpu_->attention(gpu_q->rows(part.begin, part.count), shape, cut.of(part), gpu_layer,
                        by_parts->rows(part.begin, part.count));
      }
      expect_equal(by_parts, out, "attention by parts");
      gpu_->plan_attention(shape, gpu_batch);  // which is at the first part's address
      const DeviceTensor again = room(GetParam(), out->shape());
      gpu_->attention(gpu_q, shape, gpu_batch, gpu_layer, again);  // like the next layer of the
                                                                   // pass
      expect_equal(again, out, "attention planned before");
    };
    pass({{0, 197, 0, 0}});
    pass({{0, 3, 197, 0}, {3, 40, 0, 13}});
  }
}

TEST_P(BothDevices, attend_with_one_row_of_each_sequence) {
  struct Case {
    std::int64_t heads, kv_heads, dim;
    std::int32_t block_size;
    std::vector<std::int32_t> contexts;
    std::int64_t window = 0;
  };
  const std::vector<std::int32_t> few{1, 15, 16, 17, 300, 1111}, long_one{2500};
  std::vector<std::int32_t> many, more;
  for (int i = 0; i < 70; ++i) many.push_back(1 + i * 37 % 290);
  for (int i = 0; i < 210; ++i) more.push_back(1 + i * 11 % 40);
  for (const Case& c :
       {Case{8, 2, 128, 16, few}, Case{8, 2, 128, 16, long_one}, Case{8, 8, 64, 16, few},
        Case{14, 2, 64, 32, many}, Case{8, 1, 128, 32, many}, Case{8, 4, 128, 16, more},
        Case{8, 2, 128, 16, few, 1}, Case{8, 2, 128, 16, few, 24}, Case{8, 2, 64, 32, few, 256},
        Case{8, 2, 128, 16, long_one, 1000}, Case{14, 2, 64, 32, many, 128},
        Case{8, 4, 128, 16, more, 7}}) {
    const AttentionShape shape{.heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.dim,
                               .scale = 0.09F,
                               .window = c.window};
    const auto sequences = std::ssize(c.contexts);
    std::vector<SequenceSpan> stored, asked;
    std::vector<std::int32_t> positions, last;
    std::int32_t blocks = 0;
    for (const std::int32_t context : c.contexts) {
      const auto row = static_cast<std::int32_t>(positions.size());
      stored.push_back({row, context, 0, blocks});
      asked.push_back({static_cast<std::int32_t>(asked.size()), 1, context - 1, blocks});
      for (std::int32_t p = 0; p < context; ++p) positions.push_back(p);
      last.push_back(context - 1);
      blocks += (context + c.block_size - 1) / c.block_size;
    }
    const std::vector<std::int32_t> table = shuffled(blocks);
    std::vector<std::int32_t> slots;
    for (const SequenceSpan& span : stored) {
      for (std::int32_t p = 0; p < span.rows; ++p) {
        const auto entry =
            static_cast<std::size_t>(std::int64_t{span.block_offset} + p / c.block_size);
        slots.push_back(table[entry] * c.block_size + p % c.block_size);
      }
    }
    const auto rows = std::ssize(positions);
    const HostTensor tables = integers(table, {blocks}), at = integers(positions, {rows}),
                     slot = integers(slots, {rows}), last_at = integers(last, {sequences});
    const DeviceTensor gpu_tables = exact(tables), gpu_at = exact(at), gpu_slot = exact(slot),
                       gpu_last_at = exact(last_at),
                       gpu_stored = exact(integers(numbers_of(stored), {sequences, 4})),
                       gpu_asked = exact(integers(numbers_of(asked), {sequences, 4}));
    auto cpu_kv = cpu_->allocate_kv(blocks, c.block_size, shape, GetParam());
    auto gpu_kv = gpu_->allocate_kv(blocks, c.block_size, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const HostTensor qkv = random({rows, (c.heads + 2 * c.kv_heads) * c.dim}),
                     rope = random({2500, c.dim}), q = random({sequences, c.heads * c.dim}),
                     out(DType::f32, q->shape()), unused(DType::f32, {rows, c.heads * c.dim});
    const DeviceTensor gpu_unused = room(GetParam(), unused->shape()),
                       gpu_out = room(GetParam(), out->shape());
    cpu_->norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape,
                          AttentionBatch{at, slot, tables, stored, c.block_size, {}}, cpu_layer,
                          unused);
    gpu_->norm_rope_store(
        activation(qkv), {}, {}, 1e-6F, exact(rope), shape,
        AttentionBatch{gpu_at, gpu_slot, gpu_tables, stored, c.block_size, gpu_stored}, gpu_layer,
        gpu_unused);
    expect_equal(gpu_unused, unused, "rope");
    const AttentionBatch cpu_batch{last_at, slot, tables, asked, c.block_size, {}};
    const AttentionBatch gpu_batch{gpu_last_at, gpu_slot,     gpu_tables,
                                   asked,       c.block_size, gpu_asked};
    cpu_->attention(q, shape, cpu_batch, cpu_layer, out);
    gpu_->plan_attention(shape, gpu_batch);
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention(activation(q), shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out,
                   fmt::format("{} sequences, {} / {} heads", sequences, c.heads, c.kv_heads));
    }
  }
}

TEST_P(BothDevices, attend_to_latents_with_one_row_of_each_sequence) {
  const std::vector<std::int32_t> few{1, 15, 16, 63, 64, 65, 300, 1111}, long_one{2500};
  std::vector<std::int32_t> many;
  for (int i = 0; i < 150; ++i) many.push_back(1 + i * 37 % 290);
  struct Case {
    std::int64_t heads;
    std::int32_t block_size;
    std::vector<std::int32_t> contexts;
  };
  for (const Case& c : {Case{16, 16, few}, Case{16, 64, few}, Case{3, 32, few},
                        Case{16, 16, long_one}, Case{8, 16, many}, Case{20, 16, few}}) {
    constexpr std::int64_t latent = 512, dim = 576;
    const AttentionShape shape{
        .heads = c.heads, .kv_heads = 1, .head_dim = dim, .scale = 0.05F, .latent = latent};
    const auto sequences = std::ssize(c.contexts);
    std::vector<SequenceSpan> stored, asked;
    std::vector<std::int32_t> positions, slots, last;
    std::int32_t blocks = 0;
    for (const std::int32_t context : c.contexts) {
      blocks += (context + c.block_size - 1) / c.block_size;
    }
    const std::vector<std::int32_t> table = shuffled(blocks);
    blocks = 0;
    for (const std::int32_t context : c.contexts) {
      stored.push_back({static_cast<std::int32_t>(positions.size()), context, 0, blocks});
      asked.push_back({static_cast<std::int32_t>(asked.size()), 1, context - 1, blocks});
      last.push_back(context - 1);
      for (std::int32_t p = 0; p < context; ++p) {
        positions.push_back(p);
        const auto entry = static_cast<std::size_t>(std::int64_t{blocks} + p / c.block_size);
        slots.push_back(table[entry] * c.block_size + p % c.block_size);
      }
      blocks += (context + c.block_size - 1) / c.block_size;
    }
    const auto rows = std::ssize(positions);
    const HostTensor tables = integers(table, {blocks}), at = integers(positions, {rows}),
                     slot = integers(slots, {rows}), last_at = integers(last, {sequences});
    const DeviceTensor gpu_tables = exact(tables), gpu_at = exact(at), gpu_slot = exact(slot),
                       gpu_last_at = exact(last_at),
                       gpu_stored = exact(integers(numbers_of(stored), {sequences, 4})),
                       gpu_asked = exact(integers(numbers_of(asked), {sequences, 4}));
    auto cpu_kv = cpu_->allocate_kv(blocks, c.block_size, shape, GetParam());
    auto gpu_kv = gpu_->allocate_kv(blocks, c.block_size, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const HostTensor latent_q = random({rows, c.heads * latent}),
                     rotated_q = random({rows, c.heads * (dim - latent)}), kv = random({rows, dim}),
                     norm = random({latent}), rope = random({2500, dim - latent}),
                     q = random({sequences, c.heads * dim}),
                     out(DType::f32, {sequences, c.heads * latent}),
                     unused(DType::f32, {rows, c.heads * dim});
    const DeviceTensor gpu_unused = room(GetParam(), unused->shape()),
                       gpu_out = room(GetParam(), out->shape());
    cpu_->latent_rope_store(latent_q, rotated_q, kv, norm, 1e-6F, rope, shape,
                            AttentionBatch{at, slot, tables, stored, c.block_size, {}}, cpu_layer,
                            unused);
    gpu_->latent_rope_store(
        activation(latent_q), activation(rotated_q), activation(kv), exact(norm), 1e-6F,
        exact(rope), shape,
        AttentionBatch{gpu_at, gpu_slot, gpu_tables, stored, c.block_size, gpu_stored}, gpu_layer,
        gpu_unused);
    const AttentionBatch cpu_batch{last_at, slot, tables, asked, c.block_size, {}};
    const AttentionBatch gpu_batch{gpu_last_at, gpu_slot,     gpu_tables,
                                   asked,       c.block_size, gpu_asked};
    cpu_->attention(q, shape, cpu_batch, cpu_layer, out);
    gpu_->plan_attention(shape, gpu_batch);
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention(activation(q), shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out, fmt::format("{} sequences, {} heads", sequences, c.heads));
    }
  }
}

TEST_P(BothDevices, replay_attention_that_was_recorded_for_other_contexts) {
  constexpr std::int64_t blocks = 12, dim = 128;
  const AttentionShape shape{.heads = 8, .kv_heads = 2, .head_dim = dim, .scale = 0.1F};
  if (!gpu_->supports_graph(shape, GetParam())) GTEST_SKIP() << "f32 is not graph_captured";
  // 200 sequences: contexts are not split then.
  for (const std::int32_t sequences : {1, 5, 200}) {
    auto cpu_kv = cpu_->allocate_kv(sequences * blocks, 16, shape, GetParam());
    auto gpu_kv = gpu_->allocate_kv(sequences * blocks, 16, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const HostTensor tables = integers(shuffled(sequences * blocks), {sequences * blocks});
    const DeviceTensor gpu_tables = exact(tables);
    const DeviceTensor gpu_at = room(DType::i32, {sequences}),
                       gpu_slots = room(DType::i32, {sequences}),
                       gpu_spans = room(DType::i32, {sequences, 4}),
                       gpu_qkv = room(GetParam(), {sequences, 12 * dim}),
                       gpu_q = room(GetParam(), {sequences, 8 * dim}),
                       gpu_out = room(GetParam(), {sequences, 8 * dim}),
                       gpu_rope = exact(random({256, dim}, 0.0F));
    const HostTensor rope(DType::f32, {256, dim});
    std::unique_ptr<CapturedGraph> graph;
    for (std::int32_t step = 0; step < 60; ++step) {
      std::vector<std::int32_t> positions, slots;
      std::vector<SequenceSpan> spans;
      for (std::int32_t s = 0; s < sequences; ++s) {
        // Some sequences grow fast, which leaves gaps of zeros in the cache; zeros are valid keys.
        const std::int32_t position = s % 3 == 0 ? step * 3 : step;
        const std::int32_t offset = s * static_cast<std::int32_t>(blocks);
        spans.push_back({s, 1, position, offset});
        positions.push_back(position);
        slots.push_back(tables->as<std::int32_t>()[offset + position / 16] * 16 + position % 16);
      }
      const HostTensor at = integers(positions, {sequences}), slot = integers(slots, {sequences}),
                       qkv = random({sequences, 12 * dim}), q(DType::f32, {sequences, 8 * dim}),
                       out(DType::f32, {sequences, 8 * dim});
      for (const auto& [host, device] :
           {std::pair<const Tensor&, const Tensor&>(at, gpu_at), {slot, gpu_slots}}) {
        gpu_->upload(host, device);
      }
      gpu_->upload(integers(numbers_of(spans), {sequences, 4}), gpu_spans);
      const HostTensor narrow(DType::bf16, qkv->shape());
      convert(qkv, narrow);
      gpu_->upload(narrow, gpu_qkv);
      const AttentionBatch cpu_batch{at, slot, tables, spans, 16, {}};
      const AttentionBatch gpu_batch{gpu_at, gpu_slots, gpu_tables, spans, 16, gpu_spans, true};
      gpu_->plan_attention(shape, gpu_batch);
      const auto attend = [&]() -> Result<void> {
        gpu_->norm_rope_store(gpu_qkv, {}, {}, 1e-6F, gpu_rope, shape, gpu_batch, gpu_layer, gpu_q);
        gpu_->attention(gpu_q, shape, gpu_batch, gpu_layer, gpu_out);
        return {};
      };
      if (step == 0) {
        ASSERT_TRUE(attend().ok());
      } else {
        if (step == 1) {
          auto graph_captured = gpu_->capture(attend);
          ASSERT_TRUE(graph_captured.ok()) << graph_captured.error().message;
          graph = *std::move(graph_captured);
        }
        gpu_->replay(*graph);
      }
      cpu_->norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape, cpu_batch, cpu_layer, q);
      cpu_->attention(q, shape, cpu_batch, cpu_layer, out);
      expect_equal(gpu_out, out, fmt::format("{} sequences, step {}", sequences, step));
    }
  }
}

TEST_P(BothDevices, route_and_run_experts) {
  for (const RouterOptions& options :
       {RouterOptions{.top_k = 4, .normalize = true}, RouterOptions{.top_k = 2},
        RouterOptions{.top_k = 3,
                      .normalize = true,
                      .sigmoid = true,
                      .groups = 4,
                      .top_groups = 2,
                      .scale = 2.5F}}) {
    constexpr std::int64_t tokens = 150, experts = 16, k = 48, n = 72;
    const std::int64_t top_k = options.top_k, pairs = tokens * top_k;
    const HostTensor logits = random({tokens, experts}), bias = random({experts}, 0.1F);
    const HostTensor ids(DType::i32, {tokens, top_k}), weights(DType::f32, {tokens, top_k});
    const DeviceTensor gpu_ids = room(DType::i32, ids->shape());
    const DeviceTensor gpu_weights = room(DType::f32, ids->shape());
    cpu_->route(logits, bias, options, ids, weights);
    gpu_->route(exact(logits), exact(bias), options, gpu_ids, gpu_weights);
    expect_same_integers(gpu_ids, ids, "route");
    expect_equal(gpu_weights, weights, "route's weights");

    const std::int64_t first = 3, local = 11;  // others belong to other ranks
    const HostTensor offsets(DType::i32, {local + 1}), source(DType::i32, {pairs});
    const DeviceTensor gpu_offsets = room(DType::i32, {local + 1});
    const DeviceTensor gpu_source = exact(source);
    const ExpertBatch cpu_batch{offsets, source}, gpu_batch{gpu_offsets, gpu_source};
    cpu_->permute(ids, first, cpu_batch);
    gpu_->permute(gpu_ids, first, gpu_batch);
    expect_same_integers(gpu_offsets, offsets, "permute's offsets");
    expect_same_integers(gpu_source, source, "permute's source");

    std::vector<HostTensor> owners;
    for (int e = 0; e < local; ++e) owners.push_back(random({n, k}, 0.1F));
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto cpu_experts = cpu_->prepare_grouped(views, 1);
    auto gpu_experts = gpu_->prepare_grouped(views, 1);
    ASSERT_TRUE(cpu_experts.ok() && gpu_experts.ok());
    const HostTensor x = random({tokens, k}), rows(DType::f32, {pairs, n}),
                     out(DType::f32, {tokens, n});
    cpu_->grouped_linear(**cpu_experts, x, cpu_batch, top_k, true, true, rows);
    const DeviceTensor gpu_rows = exact(HostTensor(DType::f32, {pairs, n}));
    gpu_->grouped_linear(**gpu_experts, activation(x), gpu_batch, top_k, true, true, gpu_rows);
    expect_equal(gpu_rows, rows, "grouped_linear");
    const DeviceTensor gpu_out = room(DType::f32, {tokens, n});
    cpu_->combine(rows, weights, out);
    gpu_->combine(gpu_rows, gpu_weights, gpu_out);
    expect_equal(gpu_out, out, "combine");
  }
}

TEST_P(BothDevices, add_parts_in_the_trees_order_and_gather) {
  if (is_bf16()) GTEST_SKIP() << "partial sums are f32";
  for (const std::int64_t parts : {1, 2, 3, 5, 8}) {
    const HostTensor x = random({parts * 6, 33}), sum(DType::f32, {6, 33});
    cpu_->tree_sum(x, sum);
    const DeviceTensor out = room(DType::f32, {6, 33});
    gpu_->tree_sum(exact(x), out);
    const HostTensor found = back(out);
    for (std::int64_t i = 0; i < sum->elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], sum->as<float>()[i]) << parts << " parts, element " << i;
    }
  }
  const HostTensor x = random({9, 33}), rows = integers({8, 0, 3, 3}, {4}),
                   chosen(DType::f32, {4, 33});
  cpu_->gather_rows(x, rows, chosen);
  const DeviceTensor out = room(DType::f32, {4, 33});
  gpu_->gather_rows(exact(x), exact(rows), out);
  expect_equal(out, chosen, "gather_rows");
}

}  // namespace
}  // namespace troupe
