// Attention of long prompts, which a kernel of their own attends to, beside that of other
// sequences.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/layers/attention/attention_metadata.hpp"
#include "models/ops/gpu_attention.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// A sequence with `context` positions, the last `rows` of which are in the pass.
struct Prompt {
  std::int32_t context, rows;
};

class LongPrompts : public BothDevices {
 protected:
  /// Stores all positions of `prompts` and attends to the rows of the pass, whole and in parts that
  /// are too short for that kernel, by the GPU, and by the CPU if `on_cpu`.
  void attend(const AttentionShape& shape, std::int32_t block_size,
              const std::vector<Prompt>& prompts, bool on_cpu) {
    SCOPED_TRACE(fmt::format("{}, blocks of {}", describe(shape), block_size));
    std::vector<SequenceSpan> stored, asked;
    std::vector<std::int32_t> positions, asked_positions;
    std::int32_t blocks = 0;
    for (const auto& [context, rows] : prompts) {
      stored.push_back({static_cast<std::int32_t>(positions.size()), context, 0, blocks});
      asked.push_back(
          {static_cast<std::int32_t>(asked_positions.size()), rows, context - rows, blocks});
      for (std::int32_t p = 0; p < context; ++p) positions.push_back(p);
      for (std::int32_t p = context - rows; p < context; ++p) asked_positions.push_back(p);
      blocks += (context + block_size - 1) / block_size;
    }
    std::vector<std::int32_t> table = shuffled(blocks), slots;
    for (const SequenceSpan& span : stored) {
      for (std::int32_t p = 0; p < span.rows; ++p) {
        const auto entry =
            static_cast<std::size_t>(std::int64_t{span.block_offset} + p / block_size);
        slots.push_back(table[entry] * block_size + p % block_size);
      }
    }
    const auto sequences = std::ssize(prompts), all = std::ssize(positions),
               rows = std::ssize(asked_positions);
    const HostTensor tables = integers(table, {blocks}), at = integers(positions, {all}),
                     slot = integers(slots, {all}), asked_at = integers(asked_positions, {rows});
    const AttentionBatch cpu_stored{at, slot, tables, stored, block_size, {}};
    const AttentionBatch cpu_asked{asked_at, slot, tables, asked, block_size, {}};
    const DeviceTensor gpu_at = exact(at), gpu_slot = exact(slot), gpu_asked_at = exact(asked_at),
                       gpu_tables = exact(tables),
                       spans = exact(integers(numbers_of(stored), {sequences, 4})),
                       asked_spans = exact(integers(numbers_of(asked), {sequences, 4}));
    const AttentionBatch gpu_stored{gpu_at, gpu_slot, gpu_tables, stored, block_size, spans};
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, block_size, shape, GetParam());
    ASSERT_TRUE(gpu_kv.ok());
    const KvLayer gpu_layer{gpu_kv->first, gpu_kv->second};
    const std::int64_t width = shape.heads * shape.head_dim;
    const HostTensor qkv = random({all, width + 2 * shape.kv_heads * shape.head_dim}),
                     rope = random({positions_of_rope, shape.head_dim}), q = random({rows, width}),
                     out(DType::f32, {rows, width});
    const DeviceTensor gpu_q = activation(q), unused = room(GetParam(), {all, width});
    gpu_->attention().norm_rope_store(activation(qkv), {}, {}, 1e-6F, exact(rope), shape,
                                      gpu_stored, gpu_layer, unused);

    // A block before a sequence's window is there no more.
    for (const SequenceSpan& span : asked) {
      const std::int32_t seen_from =
          shape.window == 0
              ? 0
              : std::max<std::int32_t>(
                    span.first_position - static_cast<std::int32_t>(shape.window) + 1, 0);
      std::fill_n(table.begin() + span.block_offset, seen_from / block_size, -1);
    }
    const DeviceTensor seen_tables = exact(integers(table, {blocks}));
    const AttentionBatch gpu_asked{gpu_asked_at, gpu_slot,   seen_tables,
                                   asked,        block_size, asked_spans};
    gpu_->attention().plan(shape, gpu_asked);
    const DeviceTensor whole = room(GetParam(), {rows, width});
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention().attend(gpu_q, shape, gpu_asked, gpu_layer, whole);
    }
    const HostTensor found = back(whole);

    std::vector<Slice> parts;
    constexpr std::int64_t part_rows = 700;
    for (std::int64_t row = 0; row < rows; row += part_rows) {
      parts.push_back({row, std::min(part_rows, rows - row)});
    }
    const AttentionMetadata cut(gpu_asked, {0, rows}, parts);
    const DeviceTensor by_parts = room(GetParam(), {rows, width});
    for (const Slice part : parts) {
      gpu_->attention().plan(shape, cut.of(part));
      gpu_->attention().attend(gpu_q->rows(part.begin, part.count), shape, cut.of(part), gpu_layer,
                               by_parts->rows(part.begin, part.count));
    }
    expect_equal(by_parts, found, "attention by parts");
    if (!on_cpu) return;
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, block_size, shape, GetParam());
    ASSERT_TRUE(cpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second};
    const HostTensor cpu_unused(DType::f32, {all, width});
    cpu_->attention().norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape, cpu_stored, cpu_layer,
                                      cpu_unused);
    cpu_->attention().attend(q, shape, cpu_asked, cpu_layer, out);
    expect_equal(whole, out, "attention");
  }

  static constexpr std::int64_t positions_of_rope = 10'000;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, LongPrompts, testing::Values(DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(LongPrompts, have_the_results_of_the_cpu) {
  const AttentionShape shape{.heads = 3, .kv_heads = 1, .head_dim = 128, .scale = 0.09F};
  attend(shape, 16, {{4200, 1100}}, true);
}

TEST_P(LongPrompts, beside_short_ones_have_the_results_of_their_parts) {
  const std::vector<Prompt> prompts{{700, 1}, {4500, 1501}, {300, 300}, {5003, 5003}, {90, 2}};
  for (const std::int64_t window : {0, 1000, 4096}) {
    const AttentionShape shape{
        .heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F, .window = window};
    attend(shape, 16, prompts, false);
    attend(shape, 64, prompts, false);
  }
}

TEST_P(LongPrompts, of_more_heads_than_are_gathered_at_a_time_have_the_results_of_their_parts) {
  const AttentionShape shape{.heads = 57, .kv_heads = 57, .head_dim = 128, .scale = 0.09F};
  attend(shape, 16, {{9001, 1030}}, false);
}

TEST_P(LongPrompts, with_sinks_are_attended_to_with_the_others) {
  const HostTensor sinks = random({4}, 2.0F);
  const DeviceTensor gpu_sinks = exact(sinks);
  AttentionShape shape{
      .heads = 4, .kv_heads = 2, .head_dim = 128, .scale = 0.09F, .has_sinks = true};
  shape.sinks = gpu_sinks;
  attend(shape, 16, {{4300, 1200}}, false);
}

}  // namespace
}  // namespace troupe
