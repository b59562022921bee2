// The KV cache in 8 and 4 bits on a GPU: what is written, beside the CPU's codes, and what
// attention makes of it, beside sums in double over the numbers that the codes stand for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/layers/attention/attention_metadata.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/gpu_attention.hpp"
#include "models/ops/weight_format.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// A sequence with `context` positions, the last `rows` of which are in the pass.
struct Span {
  std::int32_t context, rows;
};

/// A cache's dtype and residual.
struct Codes {
  DType dtype;
  KvResidual residual = KvResidual::none;

  AttentionShape with_residual(AttentionShape shape) const {
    shape.residual = residual;
    return shape;
  }
};

struct Case {
  AttentionShape shape;
  std::int32_t block_size;
  std::vector<Span> spans;
  bool has_sinks = false;
  float query_size = 1.0F;
};

std::vector<Span> single_rows(std::initializer_list<std::int32_t> contexts) {
  std::vector<Span> spans;
  for (const std::int32_t context : contexts) spans.push_back({context, 1});
  return spans;
}
std::vector<Span> many_rows(int count, int step, int most) {
  std::vector<Span> spans;
  for (int i = 0; i < count; ++i) spans.push_back({1 + i * step % most, 1});
  return spans;
}

/// The GPU's Ops compute in the parameter; the cache has codes.
class KvCodes : public BothDevices {
 protected:
  /// A cache with all positions of a case, stored by both devices.
  struct Stored {
    std::vector<SequenceSpan> spans, asked;
    std::vector<std::int32_t> table, slots, asked_positions;
    std::int64_t tokens = 0;
    std::pair<DeviceTensor, DeviceTensor> cpu, gpu;
    KvLayer cpu_layer, gpu_layer;
    HostTensor cpu_rows, gpu_rows;  ///< gathered, [tokens, stored_elements]
  };

  static std::string describe_case(const Case& c, DType codes) {
    return fmt::format("{} in {}{}, blocks of {}, {} sequences", describe(c.shape),
                       to_string(codes), c.shape.residual == KvResidual::keys ? " + keys" : "",
                       c.block_size, c.spans.size());
  }

  void lay_out(const Case& c, Stored& stored) {
    std::int32_t blocks = 0, rows = 0, tokens = 0;
    for (const Span& span : c.spans) {
      stored.spans.push_back({tokens, span.context, 0, blocks});
      stored.asked.push_back({rows, span.rows, span.context - span.rows, blocks});
      for (std::int32_t p = span.context - span.rows; p < span.context; ++p) {
        stored.asked_positions.push_back(p);
      }
      rows += span.rows;
      tokens += span.context;
      blocks += (span.context + c.block_size - 1) / c.block_size;
    }
    stored.tokens = tokens;
    stored.table = shuffled(blocks);
    for (const SequenceSpan& span : stored.spans) {
      for (std::int32_t p = 0; p < span.rows; ++p) {
        const auto entry =
            static_cast<std::size_t>(std::int64_t{span.block_offset} + p / c.block_size);
        stored.slots.push_back(stored.table[entry] * c.block_size + p % c.block_size);
      }
    }
  }

  HostTensor gathered(Ops& ops, const KvLayer& layer, const AttentionShape& shape,
                      const Tensor& slots, const Tensor& rows) {
    ops.attention().gather_kv(layer, shape, slots, rows);
    if (&ops == gpu_.get()) return back(rows);
    return copy_of(rows);
  }

  /// Some rows of values are zero, others small.
  HostTensor random_qkv(const AttentionShape& shape, std::int64_t tokens) {
    HostTensor qkv = random({tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim});
    const std::int64_t width = qkv.view()[1], values = shape.kv_heads * shape.head_dim;
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* const row = qkv->as<float>() + (t + 1) * width - values;
      const float factor = t % 13 == 5 ? 0.0F : std::ldexp(1.0F, static_cast<int>(t % 9) - 8);
      for (std::int64_t i = 0; i < values; ++i) row[i] *= factor;
    }
    return qkv;
  }

  void store(const Case& c, DType codes, Stored& stored) {
    const AttentionShape& shape = c.shape;
    lay_out(c, stored);
    const auto blocks = std::ssize(stored.table), count = std::ssize(stored.spans);
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, c.block_size, shape, codes);
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, c.block_size, shape, codes);
    ASSERT_TRUE(cpu_kv.ok()) << cpu_kv.error().message;
    ASSERT_TRUE(gpu_kv.ok()) << gpu_kv.error().message;
    stored.cpu = *std::move(cpu_kv);
    stored.gpu = *std::move(gpu_kv);
    stored.cpu_layer = {stored.cpu.first, stored.cpu.second};
    stored.gpu_layer = {stored.gpu.first, stored.gpu.second};
    std::vector<std::int32_t> positions;
    for (const SequenceSpan& span : stored.spans) {
      for (std::int32_t p = 0; p < span.rows; ++p) positions.push_back(p);
    }
    const HostTensor at = integers(positions, {stored.tokens}),
                     slots = integers(stored.slots, {stored.tokens}),
                     tables = integers(stored.table, {blocks});
    const HostTensor qkv = random_qkv(shape, stored.tokens), rope = random({4096, shape.head_dim}),
                     k_norm = random({shape.head_dim});
    const HostTensor q(DType::f32, {stored.tokens, shape.heads * shape.head_dim});
    const DeviceTensor gpu_at = exact(at), gpu_slots = exact(slots), gpu_tables = exact(tables),
                       gpu_q = room(GetParam(), q->shape()),
                       spans = exact(integers(numbers_of(stored.spans), {count, 4}));
    cpu_->attention().norm_rope_store(
        qkv, {}, k_norm, 1e-6F, rope, shape,
        AttentionBatch{at, slots, tables, stored.spans, c.block_size, {}}, stored.cpu_layer, q);
    gpu_->attention().norm_rope_store(
        activation(qkv), {}, exact(k_norm), 1e-6F, exact(rope), shape,
        AttentionBatch{gpu_at, gpu_slots, gpu_tables, stored.spans, c.block_size, spans},
        stored.gpu_layer, gpu_q);
    expect_equal(gpu_q, q, "rotated queries");
    const Shape rows{stored.tokens, shape.stored_elements(codes)};
    const DType of_keys = shape.key_dtype(codes);
    stored.cpu_rows = gathered(*cpu_, stored.cpu_layer, shape, slots, HostTensor(of_keys, rows));
    stored.gpu_rows = gathered(*gpu_, stored.gpu_layer, shape, gpu_slots, room(of_keys, rows));
  }

  /// A head's row in gathered ones, of which keys come first, then values.
  struct RowOfHead {
    KvRowLayout layout;
    std::int64_t begin;  ///< byte of a token's rows

    RowOfHead(const AttentionShape& shape, DType codes, std::int64_t head) {
      const KvRowLayout keys = shape.row_layout(shape.key_dtype(codes));
      const bool is_key = head < shape.kv_heads;
      layout = is_key ? keys : shape.row_layout(shape.value_dtype(codes));
      begin = is_key ? head * keys.row_elements
                     : shape.kv_heads * keys.row_elements +
                           (head - shape.kv_heads) * layout.row_elements;
    }
    double number(const std::uint8_t* token, std::int64_t i) const {
      const std::uint8_t* const codes = token + begin;
      std::uint16_t bits = 0;
      std::memcpy(&bits, codes + layout.elements, sizeof bits);
      const double scale = half_to_float(bits);
      switch (layout.stored) {
        case DType::i8:
          return static_cast<std::int8_t>(codes[i]) * scale;
        case DType::i4x2:
          return int4_levels[codes[i / 2] >> (i % 2 * 4) & 15] * scale;
        default:
          return e4m3_to_float(codes[i]) * 0x1p-8 * scale;
      }
    }
    /// By how much a key may differ from the CPU's, which is computed otherwise: a code next to it.
    /// Of 4 bits the scale may be another one whose error is almost the same.
    double key_tolerance(double number, double largest) const {
      const double rounding = largest * 2e-3;
      if (layout.stored == DType::i4x2) return 0.3 * largest;
      return 1.01 * (layout.stored == DType::i8 ? largest / 127.0 : std::fabs(number) / 8.0) +
             rounding;
    }
  };
  static const std::uint8_t* token_of(const Tensor& rows, std::int64_t token) {
    return static_cast<const std::uint8_t*>(rows.data()) + token * rows[1];
  }

  /// Values are not computed with, so theirs are the same codes; of keys a few are next to the
  /// CPU's.
  void expect_codes_of_cpu(const Case& c, DType codes, const Stored& stored) {
    const AttentionShape& shape = c.shape;
    const Tensor &found = stored.gpu_rows, &wanted = stored.cpu_rows;
    const std::int64_t key_bytes = RowOfHead(shape, codes, shape.kv_heads).begin;
    std::int64_t others = 0;
    for (std::int64_t t = 0; t < stored.tokens; ++t) {
      const std::uint8_t *const a = token_of(found, t), *const b = token_of(wanted, t);
      for (std::int64_t i = key_bytes; i < found[1]; ++i) {
        ASSERT_EQ(int{a[i]}, int{b[i]})
            << "token " << t << ", byte " << i - key_bytes << " of its values";
      }
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        const RowOfHead row(shape, codes, head);
        double largest = 0.0;
        for (std::int64_t i = 0; i < shape.head_dim; ++i) {
          largest = std::max(largest, std::fabs(row.number(b, i)));
        }
        for (std::int64_t i = 0; i < shape.head_dim; ++i) {
          const double x = row.number(a, i), y = row.number(b, i);
          ASSERT_LE(std::fabs(x - y), row.key_tolerance(y, largest))
              << "token " << t << ", KV head " << head << ", element " << i << ": " << x
              << " instead of " << y;
        }
        for (std::int64_t i = 0; i < row.layout.elements; ++i) {
          others += a[row.begin + i] == b[row.begin + i] ? 0 : 1;
        }
      }
    }
    const std::int64_t all = stored.tokens * shape.kv_heads * shape.head_dim;
    EXPECT_LE(others, 10 + all / 50) << "of " << all << " codes of keys are others than the CPU's";
  }

  /// Attention of q [rows, heads * head_dim] in double.
  static HostTensor reference(const Case& c, DType codes, const Stored& stored, const Tensor& q,
                              const float* sinks) {
    const AttentionShape& shape = c.shape;
    const std::int64_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
    HostTensor out(DType::f32, q.shape());
    std::vector<double> keys, values, scores;
    for (std::size_t s = 0; s < stored.asked.size(); ++s) {
      const SequenceSpan &all = stored.spans[s], &asked = stored.asked[s];
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        const RowOfHead key(shape, codes, head), value(shape, codes, shape.kv_heads + head);
        keys.clear();
        values.clear();
        for (std::int64_t p = 0; p < all.rows; ++p) {
          const std::uint8_t* const token = token_of(stored.gpu_rows, all.first_row + p);
          for (std::int64_t i = 0; i < dim; ++i) {
            keys.push_back(key.number(token, i));
            values.push_back(value.number(token, i));
          }
        }
        for (std::int64_t row = 0; row < asked.rows; ++row) {
          const std::int64_t position = asked.first_position + row;
          const std::int64_t oldest =
              shape.window == 0 ? 0 : std::max<std::int64_t>(position - shape.window + 1, 0);
          for (std::int64_t g = 0; g < group; ++g) {
            const std::int64_t at =
                ((asked.first_row + row) * shape.heads + head * group + g) * dim;
            scores.assign(static_cast<std::size_t>(position - oldest + 1), 0.0);
            double maximum = sinks == nullptr ? -INFINITY : sinks[head * group + g];
            for (std::int64_t p = oldest; p <= position; ++p) {
              double score = 0.0;
              for (std::int64_t i = 0; i < dim; ++i) {
                score += q.as<float>()[at + i] * keys[static_cast<std::size_t>(p * dim + i)];
              }
              score *= shape.scale;
              if (shape.soft_cap > 0.0F) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
              scores[static_cast<std::size_t>(p - oldest)] = score;
              maximum = std::max(maximum, score);
            }
            double total = sinks == nullptr ? 0.0 : std::exp(sinks[head * group + g] - maximum);
            std::vector<double> sums(static_cast<std::size_t>(dim), 0.0);
            for (std::int64_t p = oldest; p <= position; ++p) {
              const double term = std::exp(scores[static_cast<std::size_t>(p - oldest)] - maximum);
              total += term;
              for (std::int64_t i = 0; i < dim; ++i) {
                sums[static_cast<std::size_t>(i)] +=
                    term * values[static_cast<std::size_t>(p * dim + i)];
              }
            }
            for (std::int64_t i = 0; i < dim; ++i) {
              out->as<float>()[at + i] =
                  static_cast<float>(sums[static_cast<std::size_t>(i)] / total);
            }
          }
        }
      }
    }
    return out;
  }

  void expect_attention(Case c, const Codes& of) {
    const DType codes = of.dtype;
    c.shape = of.with_residual(c.shape);
    SCOPED_TRACE(describe_case(c, codes));
    Stored stored;
    store(c, codes, stored);
    if (HasFatalFailure()) return;
    expect_codes_of_cpu(c, codes, stored);
    const auto rows = std::ssize(stored.asked_positions), count = std::ssize(stored.asked),
               blocks = std::ssize(stored.table);
    AttentionShape shape = c.shape;
    const HostTensor sinks = random({shape.heads}, 2.0F);
    const DeviceTensor gpu_sinks = exact(sinks);
    if (c.has_sinks) shape.sinks = gpu_sinks;
    const HostTensor q = random({rows, shape.heads * shape.head_dim}, c.query_size);
    const HostTensor wanted =
        reference(c, codes, stored, q, c.has_sinks ? sinks->as<float>() : nullptr);
    const DeviceTensor gpu_q = activation(q), out = room(GetParam(), q->shape()),
                       at = exact(integers(stored.asked_positions, {rows})),
                       slots = exact(integers(stored.slots, {stored.tokens})),
                       tables = exact(integers(stored.table, {blocks})),
                       spans = exact(integers(numbers_of(stored.asked), {count, 4}));
    const AttentionBatch batch{at, slots, tables, stored.asked, c.block_size, spans};
    gpu_->attention().plan(shape, batch);
    for (int layer = 0; layer < 2; ++layer) {
      gpu_->attention().attend(gpu_q, shape, batch, stored.gpu_layer, out);
      expect_equal(out, wanted, "attention");
    }
    if (rows < 4) return;
    const Slice parts[] = {{0, 1}, {1, rows / 2}, {1 + rows / 2, rows - 1 - rows / 2}};
    const AttentionMetadata cut(batch, {0, rows}, parts);
    for (const AttentionBatch& part : cut.batches()) gpu_->attention().plan(shape, part);
    const DeviceTensor by_parts = room(GetParam(), q->shape());
    for (const Slice part : parts) {
      gpu_->attention().attend(gpu_q->rows(part.begin, part.count), shape, cut.of(part),
                               stored.gpu_layer, by_parts->rows(part.begin, part.count));
    }
    expect_equal(by_parts, wanted, "attention by parts");
  }
};

INSTANTIATE_TEST_SUITE_P(Dtypes, KvCodes, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

constexpr Codes all_codes[] = {
    {DType::f8_e4m3}, {DType::i8}, {DType::i4x2}, {DType::i4x2, KvResidual::keys}};

AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(dim))};
}
AttentionShape windowed(AttentionShape shape, std::int64_t window) {
  shape.window = window;
  return shape;
}
AttentionShape capped(AttentionShape shape, float soft_cap) {
  shape.soft_cap = soft_cap;
  return shape;
}

TEST_P(KvCodes, are_attended_to_by_one_row_of_each_sequence) {
  const std::vector<Span> few = single_rows({1, 15, 16, 17, 300, 1111}), one = single_rows({2500});
  AttentionShape large_queries = shape_of(8, 2, 128), small_queries = shape_of(4, 2, 64);
  large_queries.scale *= 1e-4F;
  small_queries.scale *= 1e6F;
  AttentionShape fixed = shape_of(8, 2, 128);
  fixed.key_scale = 0.02F;
  fixed.value_scale = 0.031F;
  const std::vector<Case> of_any_shape{{shape_of(8, 2, 128), 16, few},
                                       {capped(windowed(shape_of(6, 2, 40), 100), 4.0F), 32, few},
                                       {shape_of(4, 1, 256), 16, few, true},
                                       {fixed, 16, few}};
  const std::vector<Case> of_the_decode_kernel{
      Case{shape_of(8, 2, 128), 16, few},
      Case{shape_of(8, 2, 128), 16, one},
      Case{shape_of(8, 2, 128), 32, few},
      Case{shape_of(8, 8, 64), 16, few},
      Case{shape_of(14, 2, 64), 32, many_rows(70, 37, 290)},
      Case{shape_of(8, 1, 128), 32, many_rows(70, 37, 290)},
      Case{shape_of(8, 4, 128), 16, many_rows(210, 11, 40)},
      Case{windowed(shape_of(8, 2, 128), 1), 16, few},
      Case{windowed(shape_of(8, 2, 128), 24), 16, few},
      Case{windowed(shape_of(8, 2, 64), 256), 32, few},
      Case{windowed(shape_of(8, 2, 128), 1000), 16, one},
      Case{shape_of(8, 2, 80), 16, few},
      Case{windowed(shape_of(8, 8, 80), 30), 32, many_rows(70, 37, 290)},
      Case{shape_of(12, 4, 96), 16, few},
      Case{capped(shape_of(32, 2, 96), 4.0F), 16, one, true},
      Case{shape_of(7, 1, 112), 16, few},
      Case{shape_of(24, 2, 112), 16, many_rows(70, 37, 290), true},
      Case{shape_of(32, 2, 128), 16, few},
      Case{shape_of(71, 1, 64), 16, few, true},
      Case{windowed(shape_of(64, 8, 64), 128), 16, one, true},
      Case{shape_of(6, 2, 192), 16, few},
      Case{capped(shape_of(24, 2, 192), 5.0F), 16, many_rows(70, 37, 290), true},
      Case{capped(shape_of(16, 8, 256), 5.0F), 16, few},
      Case{windowed(shape_of(7, 1, 256), 1024), 16, one},
      Case{shape_of(16, 1, 256), 16, many_rows(210, 11, 40)},
      Case{large_queries, 16, few, false, 1e4F},
      Case{small_queries, 16, few, false, 1e-6F},
      Case{fixed, 16, few},
      Case{shape_of(4, 2, 40), 16, few}};
  for (const Case& c : is_bf16() ? of_the_decode_kernel : of_any_shape) {
    for (const Codes& codes : all_codes) expect_attention(c, codes);
  }
}

TEST_P(KvCodes, are_attended_to_by_prompts_and_mixed_passes) {
  const std::vector<Span> mixed{{300, 1}, {40, 40}, {77, 1}, {200, 60},
                                {210, 9}, {500, 1}, {90, 3}};
  const std::vector<Case> of_any_shape{{windowed(shape_of(8, 2, 128), 50), 16, mixed},
                                       {shape_of(4, 4, 80), 32, mixed, true}};
  const std::vector<Case> of_fast_kernels{
      Case{shape_of(8, 2, 128), 16, {{100, 100}}},
      Case{shape_of(8, 2, 128), 16, mixed},
      Case{windowed(shape_of(8, 2, 128), 50), 16, mixed},
      Case{shape_of(8, 2, 64), 32, mixed, true},
      Case{shape_of(4, 4, 80), 16, mixed},
      Case{windowed(shape_of(12, 4, 96), 33), 16, mixed, true},
      Case{shape_of(7, 1, 112), 16, mixed},
      Case{shape_of(6, 2, 192), 16, mixed},
      Case{capped(shape_of(4, 2, 256), 5.0F), 16, mixed},
      Case{shape_of(32, 2, 128), 16, {{3, 3}, {1, 1}, {700, 20}, {9, 9}}}};
  for (const Case& c : is_bf16() ? of_fast_kernels : of_any_shape) {
    for (const Codes& codes : all_codes) expect_attention(c, codes);
  }
}

TEST_P(KvCodes, are_attended_to_by_long_prompts) {
  if (!is_bf16()) GTEST_SKIP() << "f32 has one kernel for all lengths";
  expect_attention({shape_of(4, 2, 128), 16, {{50, 1}, {2300, 1100}, {30, 12}}}, {DType::f8_e4m3});
  const Case windows{windowed(shape_of(2, 1, 128), 700), 32, {{2100, 1024}}};
  for (const Codes& codes : all_codes) expect_attention(windows, codes);
}

TEST_P(KvCodes, of_a_token_do_not_depend_on_the_number_of_tokens) {
  constexpr std::int64_t most = 600;  // a warp takes more heads of many tokens
  const AttentionShape shape{.heads = 32, .kv_heads = 8, .head_dim = 128};
  const HostTensor qkv = random_qkv(shape, most);
  const DeviceTensor rope = exact(random({most, shape.head_dim})),
                     q_norm = exact(random({shape.head_dim})),
                     k_norm = exact(random({shape.head_dim}));
  std::vector<std::int32_t> numbers(most);
  for (std::int64_t i = 0; i < most; ++i) numbers[i] = static_cast<std::int32_t>(i);
  for (const DType codes : {DType::f8_e4m3, DType::i8, DType::i4x2}) {
    const auto run = [&](std::int64_t count) {
      auto kv = gpu_->attention().allocate_kv((most + 15) / 16, 16, shape, codes);
      EXPECT_TRUE(kv.ok());
      const KvLayer layer{kv->first, kv->second};
      const DeviceTensor at = exact(integers({numbers.begin(), numbers.begin() + count}, {count})),
                         q = room(GetParam(), {count, shape.heads * shape.head_dim}),
                         rows = room(codes, {count, shape.stored_elements(codes)});
      gpu_->attention().norm_rope_store(activation(qkv->rows(0, count)), q_norm, k_norm, 1e-6F,
                                        rope, shape, AttentionBatch{at, at, {}, {}, 16, {}}, layer,
                                        q);
      return std::pair{back(q), gathered(*gpu_, layer, shape, at, rows)};
    };
    const auto [all_queries, all_rows] = run(most);
    for (const std::int64_t count : {1, 100}) {
      const auto [queries, rows] = run(count);
      EXPECT_EQ(std::memcmp(queries->data(), all_queries->data(), queries->bytes()), 0)
          << "queries of " << count << " tokens, " << to_string(codes);
      EXPECT_EQ(std::memcmp(rows->data(), all_rows->data(), rows->bytes()), 0)
          << "codes of " << count << " tokens, " << to_string(codes);
    }
  }
}

TEST_P(KvCodes, move_between_ranks_and_to_the_host_as_they_are) {
  for (const Codes& of : all_codes) {
    for (const AttentionShape& plain : {shape_of(8, 8, 128), shape_of(2, 1, 80)}) {
      const DType codes = of.dtype;
      const AttentionShape shape = of.with_residual(plain);
      SCOPED_TRACE(describe_case({shape, 16, {}}, codes));
      Stored stored;
      store({shape, 16, {{100, 1}, {37, 1}}}, codes, stored);
      if (HasFatalFailure()) return;
      const auto blocks = std::ssize(stored.table);
      auto other = gpu_->attention().allocate_kv(blocks, 16, shape, codes);
      ASSERT_TRUE(other.ok());
      const KvLayer other_layer{other->first, other->second};
      const DeviceTensor slots = exact(integers(stored.slots, {stored.tokens}));
      gpu_->attention().scatter_kv(exact(stored.gpu_rows), shape, slots, other_layer);
      const Shape rows = stored.gpu_rows->shape();
      const DType of_keys = shape.key_dtype(codes);
      const HostTensor found = gathered(*gpu_, other_layer, shape, slots, room(of_keys, rows));
      EXPECT_EQ(std::memcmp(found->data(), stored.gpu_rows->data(), found->bytes()), 0) << "rows";

      const KvLayer caches[] = {stored.gpu_layer};
      auto swap = gpu_->attention().make_swap(caches, blocks);
      ASSERT_TRUE(swap.ok()) << swap.error().message;
      std::vector<SwappedBlock> moves;
      for (std::int32_t b = 0; b < blocks; ++b) {
        moves.push_back({b, static_cast<std::int32_t>(blocks) - 1 - b});
      }
      (*swap)->copy_out(moves);
      (*swap)->join();
      const HostTensor zeros(of_keys, rows);
      gpu_->attention().scatter_kv(exact(zeros), shape, slots, stored.gpu_layer);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      (*swap)->copy_in(moves);
      (*swap)->join();
      const HostTensor again = gathered(*gpu_, stored.gpu_layer, shape, slots, room(of_keys, rows));
      EXPECT_EQ(std::memcmp(again->data(), stored.gpu_rows->data(), again->bytes()), 0) << "swap";
    }
  }
}

}  // namespace
}  // namespace troupe
