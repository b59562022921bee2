// Attention of the GPU beside the CPU's, for the shapes that families have and odd ones.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/layers/attention/attention_metadata.hpp"
#include "models/ops/gpu_attention.hpp"
#include "parallel/device/convert.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Attention : public BothDevices {
 protected:
  /// A shape for both devices, with sinks on each if it is to have them.
  class Sinks {
   public:
    Sinks(Attention& test, const AttentionShape& shape, bool has_sinks)
        : host_shape_(shape), device_shape_(shape) {
      if (!has_sinks) return;
      host_ = test.random({shape.heads}, 2.0F);
      device_ = test.exact(host_);
      host_shape_.sinks = host_;
      device_shape_.sinks = device_;
    }
    const AttentionShape& host_shape() const { return host_shape_; }
    const AttentionShape& device_shape() const { return device_shape_; }

   private:
    HostTensor host_;
    DeviceTensor device_;
    AttentionShape host_shape_, device_shape_;
  };

  void replay(const AttentionShape& of, bool has_sinks, std::int32_t sequences);
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Attention, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Attention, store_and_attend) {
  struct Case {
    AttentionShape shape;
    bool norms;
  };
  const Case cases[] = {
      {{.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125F}, true},
      {{.heads = 9, .kv_heads = 3, .head_dim = 64, .scale = 0.125F}, false},
      {{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F}, true},
      {{.heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125F, .window = 33}, true},
      {{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F, .window = 100}, false},
      {{.heads = 6, .kv_heads = 1, .head_dim = 32, .scale = 0.2F}, false},
      {{.heads = 4, .kv_heads = 4, .head_dim = 16, .scale = 0.3F, .window = 24}, false},
      {{.heads = 3, .kv_heads = 1, .head_dim = 80, .scale = 0.1F, .latent = 64}, false},
      {{.heads = 16, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false},
      {{.heads = 5, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false},
      {{.heads = 80, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}, false},
      {{.heads = 6, .kv_heads = 2, .head_dim = 80, .scale = 0.11F}, true},
      {{.heads = 4, .kv_heads = 4, .head_dim = 96, .scale = 0.1F, .window = 40}, false},
      {{.heads = 24, .kv_heads = 2, .head_dim = 112, .scale = 0.1F}, false},
      {{.heads = 32, .kv_heads = 2, .head_dim = 128, .scale = 0.09F, .window = 50}, false},
      {{.heads = 71, .kv_heads = 1, .head_dim = 64, .scale = 0.125F}, false},
      {{.heads = 4, .kv_heads = 2, .head_dim = 192, .scale = 0.07F}, false},
      {{.heads = 7, .kv_heads = 1, .head_dim = 256, .scale = 0.06F, .window = 60}, true},
      {{.heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 0.125F, .soft_cap = 3.0F}, false},
      {{.heads = 4, .kv_heads = 2, .head_dim = 96, .scale = 0.1F, .soft_cap = 2.0F}, false},
      {{.heads = 8, .kv_heads = 4, .head_dim = 256, .scale = 0.06F, .window = 64, .soft_cap = 5.0F},
       true},
      {{.heads = 3, .kv_heads = 1, .head_dim = 40, .scale = 0.1F, .soft_cap = 2.0F}, false}};
  std::vector<std::pair<Case, bool>> with_and_without;
  for (const Case& c : cases) with_and_without.emplace_back(c, false);
  for (const Case& c : cases) {
    if (c.shape.latent == 0) with_and_without.emplace_back(c, true);
  }
  for (const auto& [c, has_sinks] : with_and_without) {
    const Sinks sinks(*this, c.shape, has_sinks);
    const AttentionShape &shape = sinks.host_shape(), &gpu_shape = sinks.device_shape();
    SCOPED_TRACE(describe(shape));
    // Two sequences: one of 200 positions with queries for the last 3, one of 40 with queries for
    // all, whose table is much longer than that.
    const std::int64_t dim = shape.head_dim, blocks = 13 + 150;
    std::vector<std::int32_t> table = shuffled(blocks);
    const HostTensor tables = integers(table, {blocks});
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, 16, shape, GetParam());
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, 16, shape, GetParam());
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
      gpu_->attention().plan(gpu_shape, gpu_batch);
      // Of latent attention's queries a part is there before.
      const HostTensor q = random({rows, shape.heads * dim});
      const HostTensor out(DType::f32, {rows, shape.heads * shape.value_dim()});
      const DeviceTensor gpu_q = activation(q), gpu_out = room(GetParam(), out->shape());
      if (shape.latent > 0) {
        // Rotated queries and keys are columns of one matrix.
        const std::int64_t turned = shape.heads * rotated;
        const HostTensor input = random({rows, turned + dim});
        const DeviceTensor gpu_input = activation(input);
        cpu_->attention().latent_rope_store({input, 0, turned}, {input, turned, dim}, latent_norm,
                                            1e-6F, rope, shape, cpu_batch, cpu_layer, q);
        gpu_->attention().latent_rope_store({gpu_input, 0, turned}, {gpu_input, turned, dim},
                                            exact(latent_norm), 1e-6F, exact(rope), shape,
                                            gpu_batch, gpu_layer, gpu_q);
      } else {
        const HostTensor qkv = random({rows, (shape.heads + 2 * shape.kv_heads) * dim});
        cpu_->attention().norm_rope_store(qkv, q_norm, k_norm, 1e-6F, rope, shape, cpu_batch,
                                          cpu_layer, q);
        gpu_->attention().norm_rope_store(activation(qkv), exact(q_norm), exact(k_norm), 1e-6F,
                                          exact(rope), shape, gpu_batch, gpu_layer, gpu_q);
      }
      expect_equal(gpu_q, q, "rope");
      // Of the same queries: those of bf16 are rounded, which weighs more than what attention does.
      cpu_->attention().attend(back(gpu_q), shape, cpu_batch, cpu_layer, out);
      gpu_->attention().attend(gpu_q, gpu_shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out, "attention");
      const Slice parts[] = {{0, 1}, {1, 0}, {1, rows / 2}, {1 + rows / 2, rows - 1 - rows / 2}};
      const AttentionMetadata cut(gpu_batch, {0, rows}, parts);
      for (const AttentionBatch& part : cut.batches()) gpu_->attention().plan(gpu_shape, part);
      const DeviceTensor by_parts = room(GetParam(), out->shape());
      for (const Slice part : parts) {
        gpu_->attention().attend(gpu_q->rows(part.begin, part.count), gpu_shape, cut.of(part),
                                 gpu_layer, by_parts->rows(part.begin, part.count));
      }
      expect_equal(by_parts, out, "attention by parts");
      const Slice own{rows / 3, rows - rows / 3}, all_own{0, own.count};
      const AttentionMetadata shared(gpu_batch, own, {&all_own, 1});
      gpu_->attention().plan(gpu_shape, shared.whole());
      const DeviceTensor of_own = room(GetParam(), {own.count, out->shape()[1]});
      gpu_->attention().attend(gpu_q->rows(own.begin, own.count), gpu_shape, shared.whole(),
                               gpu_layer, of_own);
      expect_equal(of_own, out->rows(own.begin, own.count), "attention of a context rank's rows");
      gpu_->attention().plan(gpu_shape, gpu_batch);  // which is at the first part's address
      const DeviceTensor again = room(GetParam(), out->shape());
      gpu_->attention().attend(gpu_q, gpu_shape, gpu_batch, gpu_layer,
                               again);  // as the next layer of the pass
      expect_equal(again, out, "attention planned before");
    };
    pass({{0, 197, 0, 0}});
    pass({{0, 3, 197, 0}, {3, 40, 0, 13}});
    pass({{0, 3, 197, 0}, {3, 20, 20, 13}});  // few rows
  }
}

TEST_P(Attention, attend_with_one_row_of_each_sequence) {
  struct Case {
    std::int64_t heads, kv_heads, dim;
    std::int32_t block_size;
    std::vector<std::int32_t> contexts;
    std::int64_t window = 0;
    float soft_cap = 0.0F;
    bool has_sinks = false;
  };
  const std::vector<std::int32_t> few{1, 15, 16, 17, 300, 1111}, long_one{2500};
  std::vector<std::int32_t> many, more;
  for (int i = 0; i < 70; ++i) many.push_back(1 + i * 37 % 290);
  for (int i = 0; i < 210; ++i) more.push_back(1 + i * 11 % 40);
  for (const Case& c : {Case{8, 2, 128, 16, few},
                        Case{8, 2, 128, 16, long_one},
                        Case{8, 8, 64, 16, few},
                        Case{14, 2, 64, 32, many},
                        Case{8, 1, 128, 32, many},
                        Case{8, 4, 128, 16, more},
                        Case{8, 2, 128, 16, few, 1},
                        Case{8, 2, 128, 16, few, 24},
                        Case{8, 2, 64, 32, few, 256},
                        Case{8, 2, 128, 16, long_one, 1000},
                        Case{14, 2, 64, 32, many, 128},
                        Case{8, 4, 128, 16, more, 7},
                        Case{8, 2, 80, 16, few},
                        Case{8, 8, 80, 32, many, 30},
                        Case{12, 4, 96, 16, few},
                        Case{32, 2, 96, 16, long_one, 0, 4.0F, true},
                        Case{7, 1, 112, 16, few},
                        Case{24, 2, 112, 16, many, 0, 0.0F, true},
                        Case{32, 2, 128, 16, few},
                        Case{16, 1, 128, 32, more, 0, 3.0F},
                        Case{12, 1, 128, 16, long_one, 700, 0.0F, true},
                        Case{71, 1, 64, 16, few, 0, 2.0F, true},
                        Case{71, 1, 64, 16, long_one},
                        Case{16, 2, 64, 16, few, 128, 0.0F, true},
                        Case{64, 8, 64, 16, long_one, 128, 0.0F, true},
                        Case{6, 2, 192, 16, few},
                        Case{24, 2, 192, 16, many, 0, 5.0F, true},
                        Case{4, 4, 192, 16, long_one},
                        Case{16, 8, 256, 16, few, 0, 5.0F},
                        Case{4, 1, 256, 16, many, 0, 0.0F, true},
                        Case{7, 1, 256, 16, long_one, 1024},
                        Case{16, 1, 256, 16, more, 9, 2.0F, true}}) {
    const Sinks sinks(*this,
                      {.heads = c.heads,
                       .kv_heads = c.kv_heads,
                       .head_dim = c.dim,
                       .scale = 0.09F,
                       .window = c.window,
                       .soft_cap = c.soft_cap},
                      c.has_sinks);
    const AttentionShape &shape = sinks.host_shape(), &gpu_shape = sinks.device_shape();
    SCOPED_TRACE(describe(shape));
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
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, c.block_size, shape, GetParam());
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, c.block_size, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const HostTensor qkv = random({rows, (c.heads + 2 * c.kv_heads) * c.dim}),
                     rope = random({2500, c.dim}), q = random({sequences, c.heads * c.dim}),
                     out(DType::f32, q->shape()), unused(DType::f32, {rows, c.heads * c.dim});
    const DeviceTensor gpu_unused = room(GetParam(), unused->shape()),
                       gpu_out = room(GetParam(), out->shape());
    cpu_->attention().norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape,
                                      AttentionBatch{at, slot, tables, stored, c.block_size, {}},
                                      cpu_layer, unused);
    gpu_->attention().norm_rope_store(
        activation(qkv), {}, {}, 1e-6F, exact(rope), shape,
        AttentionBatch{gpu_at, gpu_slot, gpu_tables, stored, c.block_size, gpu_stored}, gpu_layer,
        gpu_unused);
    expect_equal(gpu_unused, unused, "rope");
    const AttentionBatch cpu_batch{last_at, slot, tables, asked, c.block_size, {}};
    const AttentionBatch gpu_batch{gpu_last_at, gpu_slot,     gpu_tables,
                                   asked,       c.block_size, gpu_asked};
    cpu_->attention().attend(q, shape, cpu_batch, cpu_layer, out);
    gpu_->attention().plan(gpu_shape, gpu_batch);
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention().attend(activation(q), gpu_shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out,
                   fmt::format("{} sequences, {} / {} heads", sequences, c.heads, c.kv_heads));
    }
  }
}

TEST_P(Attention, attend_to_latents_with_one_row_of_each_sequence) {
  const std::vector<std::int32_t> few{1, 15, 16, 63, 64, 65, 300, 1111}, long_one{2500};
  std::vector<std::int32_t> many, more;  // more than a GPU has multiprocessors, once and twice
  for (int i = 0; i < 150; ++i) many.push_back(1 + i * 37 % 290);
  for (int i = 0; i < 300; ++i) more.push_back(1 + i * 53 % 150);
  struct Case {
    std::int64_t heads;
    std::int32_t block_size;
    std::vector<std::int32_t> contexts;
  };
  for (const Case& c :
       {Case{16, 16, few}, Case{16, 64, few}, Case{3, 32, few}, Case{16, 16, long_one},
        Case{8, 16, many}, Case{16, 16, more}, Case{20, 16, few}}) {
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
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, c.block_size, shape, GetParam());
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, c.block_size, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    const HostTensor rotated_q = random({rows, c.heads * (dim - latent)}), kv = random({rows, dim}),
                     norm = random({latent}), rope = random({2500, dim - latent}),
                     q = random({sequences, c.heads * dim}),
                     out(DType::f32, {sequences, c.heads * latent}),
                     unused(DType::f32, {rows, c.heads * dim});
    const DeviceTensor gpu_unused = room(GetParam(), unused->shape()),
                       gpu_out = room(GetParam(), out->shape());
    cpu_->attention().latent_rope_store(rotated_q.view(), kv.view(), norm, 1e-6F, rope, shape,
                                        AttentionBatch{at, slot, tables, stored, c.block_size, {}},
                                        cpu_layer, unused);
    gpu_->attention().latent_rope_store(
        activation(rotated_q).view(), activation(kv).view(), exact(norm), 1e-6F, exact(rope), shape,
        AttentionBatch{gpu_at, gpu_slot, gpu_tables, stored, c.block_size, gpu_stored}, gpu_layer,
        gpu_unused);
    const AttentionBatch cpu_batch{last_at, slot, tables, asked, c.block_size, {}};
    const AttentionBatch gpu_batch{gpu_last_at, gpu_slot,     gpu_tables,
                                   asked,       c.block_size, gpu_asked};
    cpu_->attention().attend(q, shape, cpu_batch, cpu_layer, out);
    gpu_->attention().plan(shape, gpu_batch);
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention().attend(activation(q), shape, gpu_batch, gpu_layer, gpu_out);
      expect_equal(gpu_out, out, fmt::format("{} sequences, {} heads", sequences, c.heads));
    }
  }
}

/// Records attention of the first step, and replays it for contexts of up to 180 tokens.
void Attention::replay(const AttentionShape& of, bool has_sinks, std::int32_t sequences) {
  const Sinks sinks(*this, of, has_sinks);
  const AttentionShape &shape = sinks.host_shape(), &gpu_shape = sinks.device_shape();
  SCOPED_TRACE(describe(shape));
  constexpr std::int64_t blocks = 12;
  const std::int64_t dim = shape.head_dim, q_width = shape.heads * dim,
                     qkv_width = (shape.heads + 2 * shape.kv_heads) * dim;
  ASSERT_TRUE(gpu_->attention().supports_graph(gpu_shape, GetParam()));
  auto cpu_kv = cpu_->attention().allocate_kv(sequences * blocks, 16, shape, GetParam());
  auto gpu_kv = gpu_->attention().allocate_kv(sequences * blocks, 16, shape, GetParam());
  ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
  const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second}, gpu_layer{gpu_kv->first, gpu_kv->second};
  const HostTensor tables = integers(shuffled(sequences * blocks), {sequences * blocks});
  const DeviceTensor gpu_tables = exact(tables);
  const DeviceTensor gpu_at = room(DType::i32, {sequences}),
                     gpu_slots = room(DType::i32, {sequences}),
                     gpu_spans = room(DType::i32, {sequences, 4}),
                     gpu_qkv = room(GetParam(), {sequences, qkv_width}),
                     gpu_q = room(GetParam(), {sequences, q_width}),
                     gpu_out = room(GetParam(), {sequences, q_width}),
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
                     qkv = random({sequences, qkv_width}), q(DType::f32, {sequences, q_width}),
                     out(DType::f32, {sequences, q_width});
    for (const auto& [host, device] :
         {std::pair<const Tensor&, const Tensor&>(at, gpu_at), {slot, gpu_slots}}) {
      gpu_->memory().upload(host, device);
    }
    gpu_->memory().upload(integers(numbers_of(spans), {sequences, 4}), gpu_spans);
    const HostTensor narrow(DType::bf16, qkv->shape());
    convert(qkv, narrow);
    gpu_->memory().upload(narrow, gpu_qkv);
    const AttentionBatch cpu_batch{at, slot, tables, spans, 16, {}};
    const AttentionBatch gpu_batch{gpu_at, gpu_slots, gpu_tables, spans, 16, gpu_spans, true};
    gpu_->attention().plan(gpu_shape, gpu_batch);
    const auto attend = [&]() -> Result<void> {
      gpu_->attention().norm_rope_store(gpu_qkv, {}, {}, 1e-6F, gpu_rope, shape, gpu_batch,
                                        gpu_layer, gpu_q);
      gpu_->attention().attend(gpu_q, gpu_shape, gpu_batch, gpu_layer, gpu_out);
      return {};
    };
    if (step == 0) {
      ASSERT_TRUE(attend().ok());
    } else {
      if (step == 1) {
        auto graph_captured = gpu_->stream().capture(attend);
        ASSERT_TRUE(graph_captured.ok()) << graph_captured.error().message;
        graph = *std::move(graph_captured);
      }
      gpu_->stream().replay(*graph);
    }
    cpu_->attention().norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape, cpu_batch, cpu_layer, q);
    cpu_->attention().attend(q, shape, cpu_batch, cpu_layer, out);
    expect_equal(gpu_out, out, fmt::format("{} sequences, step {}", sequences, step));
  }
}

TEST_P(Attention, replay_attention_that_was_recorded_for_other_contexts) {
  if (!is_bf16()) GTEST_SKIP() << "f32 is not recorded";
  struct Case {
    AttentionShape shape;
    bool has_sinks;
    std::vector<std::int32_t> sequences;  // of 200, no context is split
  };
  for (const Case& c :
       {Case{{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.1F}, false, {1, 5, 200}},
        Case{{.heads = 32, .kv_heads = 2, .head_dim = 80, .scale = 0.1F, .window = 50}, true, {5}},
        Case{{.heads = 4, .kv_heads = 1, .head_dim = 256, .scale = 0.06F, .soft_cap = 4.0F},
             true,
             {5}}}) {
    for (const std::int32_t sequences : c.sequences) replay(c.shape, c.has_sinks, sequences);
  }
}

}  // namespace
}  // namespace troupe
