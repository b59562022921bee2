// The KV cache in 8 or 4 bits on CPUs: what is written, and what attention makes of it. A coded
// cache is compared with one of f32 that holds the numbers which its codes stand for, decoded here.
#include <cmath>
#include <numeric>

#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"
#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

constexpr std::int32_t block_size = 16;

/// The cache of one sequence in one layer, its blocks in reverse order.
struct Sequence {
  Sequence(Ops& made, const AttentionShape& of, DType dtype, std::int32_t count)
      : ops(made), shape(of), nominal(dtype), tokens(count) {
    table.resize(static_cast<std::size_t>((count + block_size - 1) / block_size));
    std::iota(table.rbegin(), table.rend(), 0);
    for (std::int32_t i = 0; i < count; ++i) {
      const auto block = static_cast<std::size_t>(i / block_size);
      slots.push_back(table[block] * block_size + i % block_size);
    }
    const auto blocks = static_cast<std::int64_t>(table.size());
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, dtype);
    EXPECT_TRUE(pages.ok());
    owners = *std::move(pages);
    // Contents left in a page by other sequences must not matter.
    for (const DeviceTensor* tensor : {&owners.first, &owners.second}) {
      if (!(*tensor)->empty()) std::memset((*tensor)->data(), 0x7f, (*tensor)->bytes());
    }
    weights = floats({blocks, shape.kv_heads, block_size});
    layer = {owners.first, owners.second, weights};
  }

  template <class Use>
  auto with_batch(std::int32_t begin, std::int32_t count, const Use& use) {
    std::vector<std::int32_t> places(static_cast<std::size_t>(count));
    std::iota(places.begin(), places.end(), begin);
    const HostTensor positions = integers(places), blocks = integers(table);
    const HostTensor slot =
        integers(std::vector<std::int32_t>(slots.begin() + begin, slots.begin() + begin + count));
    const SequenceSpan spans[] = {{0, count, begin, 0}};
    return use(AttentionBatch{positions, slot, blocks, spans, block_size, {}});
  }

  /// Stores rows [begin, begin + count) of `input`, and returns their queries.
  HostTensor store(const Tensor& input, const Tensor& rope, std::int32_t begin,
                   std::int32_t count) {
    return with_batch(begin, count, [&](const AttentionBatch& batch) {
      HostTensor q = floats({count, shape.heads * shape.head_dim});
      const Tensor rows = input.rows(begin, count);
      if (shape.latent == 0) {
        ops.attention().norm_rope_store(rows, {}, {}, 1e-6F, rope, shape, batch, layer, q);
        return q;
      }
      // Queries are taken from the input as they are; only their rotated parts are written.
      HostTensor ones = floats({shape.latent});
      std::ranges::fill(ones->span<float>(), 1.0F);
      const std::int64_t rotated = shape.head_dim - shape.latent;
      HostTensor turned = floats({count, shape.heads * rotated}),
                 kv = floats({count, shape.head_dim});
      for (std::int64_t row = 0; row < count; ++row) {
        const float* from = rows.as<float>() + row * rows[1];
        std::copy_n(from, shape.head_dim, kv->as<float>() + row * shape.head_dim);
        for (std::int64_t head = 0; head < shape.heads; ++head) {
          const float* query = from + (1 + head) * shape.head_dim;
          std::copy_n(query, shape.latent,
                      q->as<float>() + (row * shape.heads + head) * shape.head_dim);
          std::copy_n(query + shape.latent, rotated,
                      turned->as<float>() + (row * shape.heads + head) * rotated);
        }
      }
      ops.attention().latent_rope_store(turned.view(), kv.view(), ones, 1e-6F, rope, shape, batch,
                                        layer, q);
      return q;
    });
  }
  HostTensor attend(const Tensor& q, std::int32_t begin, std::int32_t count) {
    return with_batch(begin, count, [&](const AttentionBatch& batch) {
      HostTensor out = floats({count, shape.heads * shape.value_dim()});
      ops.attention().attend(q, shape, batch, layer, out);
      return out;
    });
  }
  void observe(const Tensor& q) {
    with_batch(0, tokens, [&](AttentionBatch batch) {
      const std::int32_t observed[] = {tokens};
      batch.observed_rows = observed;
      ops.attention().accumulate_weights(q, shape, batch, layer);
      return 0;
    });
  }
  HostTensor gathered() {
    HostTensor rows(layer.keys.dtype(), {tokens, shape.stored_elements(nominal)});
    ops.attention().gather_kv(layer, shape, integers(slots), rows);
    return rows;
  }
  void scatter(const Tensor& rows) {
    ops.attention().scatter_kv(rows, shape, integers(slots), layer);
  }

  Ops& ops;
  AttentionShape shape;
  DType nominal;  // the cache's; keys with residuals have another one
  std::int32_t tokens;
  std::vector<std::int32_t> table, slots;
  std::pair<DeviceTensor, DeviceTensor> owners;
  HostTensor weights;
  KvLayer layer;
};

/// The number that code `i` of a row stands for.
float number_of(const std::uint8_t* codes, std::int64_t i, const KvRowLayout& layout) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, codes + layout.elements + (i < layout.first_part ? 0 : 2), sizeof bits);
  const float scale = half_to_float(bits);
  switch (layout.stored) {
    case DType::f8_e4m3:
      return e4m3_to_float(codes[i]) * 0x1p-8F * scale;
    case DType::i4x2:
      return static_cast<float>(int4_levels[codes[i / 2] >> (i % 2 * 4) & 15]) * scale;
    default:
      return static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

/// The numbers of gathered rows of a cache of `nominal`: of each KV head its keys, then of each its
/// values; behind the codes of a row its scales.
HostTensor decoded(const Tensor& rows, const AttentionShape& shape, DType nominal) {
  HostTensor numbers = floats({rows[0], shape.cached_elements()});
  float* to = numbers->as<float>();
  const auto* codes = static_cast<const std::uint8_t*>(rows.data());
  for (std::int64_t token = 0; token < rows[0]; ++token) {
    for (const bool is_key : {true, false}) {
      if (!is_key && shape.latent > 0) continue;
      const KvRowLayout layout =
          shape.row_layout(is_key ? shape.key_dtype(nominal) : shape.value_dtype(nominal));
      for (std::int64_t head = 0; head < shape.kv_heads; ++head, codes += layout.row_elements) {
        for (std::int64_t i = 0; i < layout.head_dim; ++i) *to++ = number_of(codes, i, layout);
      }
    }
  }
  return numbers;
}

struct Input {
  HostTensor rows, rope;
};
Input random_input(unsigned seed, const AttentionShape& shape, std::int32_t tokens) {
  const std::int64_t heads = shape.heads + (shape.latent > 0 ? 1 : 2 * shape.kv_heads);
  return {Random(seed).normal({tokens, heads * shape.head_dim}),
          rope_table(tokens, shape.head_dim - shape.latent)};
}

// Sizes that are no multiples of a vector, windows, caps, latent parts, and those of models.
std::vector<AttentionShape> all_shapes() {
  return {{.heads = 4, .kv_heads = 2, .head_dim = 2, .scale = 0.7F},
          {.heads = 4, .kv_heads = 2, .head_dim = 24, .scale = 0.2F},
          {.heads = 6, .kv_heads = 3, .head_dim = 40, .scale = 0.16F, .window = 37},
          {.heads = 2, .kv_heads = 2, .head_dim = 90, .scale = 0.1F, .soft_cap = 3.0F},
          {.heads = 3, .kv_heads = 1, .head_dim = 120, .scale = 0.09F},
          {.heads = 8, .kv_heads = 1, .head_dim = 128, .scale = 0.09F},
          {.heads = 67, .kv_heads = 1, .head_dim = 16, .scale = 0.25F},
          {.heads = 4, .kv_heads = 1, .head_dim = 56, .scale = 0.1F, .latent = 40},
          {.heads = 3, .kv_heads = 1, .head_dim = 576, .scale = 0.04F, .latent = 512}};
}

/// A cache's dtype and residual.
struct Codes {
  DType dtype;
  KvResidual residual = KvResidual::none;
};

class KvCodes : public testing::TestWithParam<Codes> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  AttentionShape with_residual(AttentionShape shape) const {
    shape.residual = GetParam().residual;
    return shape;
  }
  /// Those that a cache of these codes can have.
  std::vector<AttentionShape> shapes() const {
    std::vector<AttentionShape> shapes;
    for (const AttentionShape& shape : all_shapes()) {
      if (dtype() == DType::i4x2 && shape.latent > 0) continue;
      shapes.push_back(with_residual(shape));
    }
    return shapes;
  }
};

TEST_P(KvCodes, are_the_nearest_to_the_numbers_of_each_row) {
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    const auto ops = make_ops();
    Input input = random_input(3, shape, 50);
    const std::int64_t width = input.rows.view()[1];
    std::fill_n(input.rows->as<float>() + 7 * width, width, 0.0F);
    for (std::int64_t i = 0; i < width; ++i) input.rows->as<float>()[9 * width + i] *= 1e4F;
    Sequence coded(*ops, shape, dtype(), 50), exact(*ops, shape, DType::f32, 50);
    coded.store(input.rows, input.rope, 0, 50);
    exact.store(input.rows, input.rope, 0, 50);
    const HostTensor found = decoded(coded.gathered(), shape, dtype()), wanted = exact.gathered();
    const std::int64_t dim = shape.head_dim;
    for (std::int64_t row = 0; row < wanted->elements() / dim; ++row) {
      const float* const numbers = wanted->as<float>() + row * dim;
      const std::int64_t parts[] = {0, shape.latent > 0 ? shape.latent : dim, dim};
      for (int part = 0; part < 2; ++part) {
        float largest = 0.0F;
        for (std::int64_t i = parts[part]; i < parts[part + 1]; ++i) {
          largest = std::max(largest, std::fabs(numbers[i]));
        }
        for (std::int64_t i = parts[part]; i < parts[part + 1]; ++i) {
          const bool is_key = row % (2 * shape.kv_heads) < shape.kv_heads;
          const DType stored =
              is_key || shape.latent > 0 ? shape.key_dtype(dtype()) : shape.value_dtype(dtype());
          if (stored == DType::i4x2) continue;  // the next test's
          // Half a step, and the rounding of the scale.
          const float step = stored == DType::f8_e4m3
                                 ? std::fabs(numbers[i]) / 16.0F * 1.001F + largest / 400'000.0F
                                 : largest / 254.0F * 1.001F + largest * 5e-4F;
          EXPECT_NEAR(found->as<float>()[row * dim + i], numbers[i], step + 1e-7F) << "row " << row;
        }
      }
    }
  }
}

/// The squared error of rounding numbers to int4_levels times `scale`.
double int4_error(std::span<const float> numbers, double scale) {
  double sum = 0.0;
  for (const double number : numbers) {
    double least = std::numeric_limits<double>::infinity();
    for (const double level : int4_levels)
      least = std::min(least, std::abs(number - level * scale));
    sum += least * least;
  }
  return sum;
}

TEST(Int4KvCodes, are_the_nearest_levels_and_of_a_scale_that_is_hard_to_improve) {
  double of_equal_steps = 0.0, of_rows = 0.0, of_searched = 0.0;
  for (const AttentionShape& shape : all_shapes()) {
    if (shape.latent > 0) continue;
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    const auto ops = make_ops();
    Input input = random_input(13, shape, 50);
    const std::int64_t width = input.rows.view()[1], dim = shape.head_dim;
    std::fill_n(input.rows->as<float>() + 7 * width, width, 0.0F);
    for (std::int64_t i = 0; i < width; ++i) input.rows->as<float>()[9 * width + i] *= 1e4F;
    Sequence coded(*ops, shape, DType::i4x2, 50), exact(*ops, shape, DType::f32, 50);
    coded.store(input.rows, input.rope, 0, 50);
    exact.store(input.rows, input.rope, 0, 50);
    const HostTensor codes = coded.gathered(), wanted = exact.gathered();
    const HostTensor found = decoded(codes, shape, DType::i4x2);
    for (std::int64_t row = 0; row < wanted->elements() / dim; ++row) {
      const std::span numbers(wanted->as<float>() + row * dim, static_cast<std::size_t>(dim));
      std::uint16_t bits = 0;
      std::memcpy(&bits,
                  static_cast<const std::uint8_t*>(codes->data()) + row * (dim / 2 + 2) + dim / 2,
                  sizeof bits);
      double error = 0.0, largest = 0.0, squares = 0.0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double number = numbers[i];
        error += std::pow(number - found->as<float>()[row * dim + static_cast<std::int64_t>(i)], 2);
        largest = std::max(largest, std::abs(number));
        squares += number * number;
      }
      EXPECT_LE(error, int4_error(numbers, half_to_float(bits)) + 1e-6 * squares) << "row " << row;
      for (const double level : {-127.0, 106.0}) {  // a scale of fp16 is off by 1/2048 at most
        for (const double sign : {-1.0, 1.0}) {
          const double start = int4_error(numbers, sign * largest / level);
          if (numbers.size() > 2) {
            EXPECT_LE(error, start * 1.02 + 1e-5 * squares) << "row " << row;
          }
        }
      }
      if (dim < 64 || squares == 0.0) continue;
      double searched = std::numeric_limits<double>::infinity();
      for (int step = 0; step <= 100; ++step) {
        const double scale = largest / 127.0 * (0.6 + 0.7 * step / 100);
        searched = std::min({searched, int4_error(numbers, scale), int4_error(numbers, -scale)});
      }
      double equal = 0.0;
      for (const double number : numbers) {
        const double code = std::clamp(std::nearbyint(number / largest * 7.5 - 0.5), -8.0, 7.0);
        equal += std::pow(number - (code + 0.5) * largest / 7.5, 2);
      }
      of_rows += error / squares;
      of_searched += searched / squares;
      of_equal_steps += equal / squares;
    }
  }
  EXPECT_LT(of_rows, 1.05 * of_searched);
  EXPECT_LT(of_rows, 0.85 * of_equal_steps);
}

TEST_P(KvCodes, are_read_by_attention_as_the_numbers_that_they_stand_for) {
  constexpr std::int32_t tokens = 150;
  for (AttentionShape shape : shapes()) {
    for (const bool has_sinks : {false, true}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", sinks " << has_sinks);
      const HostTensor sinks = Random(9).normal({shape.heads});
      if (has_sinks) shape.sinks = sinks;
      const auto ops = make_ops();
      const Input input = random_input(4, shape, tokens);
      Sequence coded(*ops, shape, dtype(), tokens), plain(*ops, shape, DType::f32, tokens);
      const HostTensor q = coded.store(input.rows, input.rope, 0, tokens);
      plain.scatter(decoded(coded.gathered(), shape, dtype()));
      const HostTensor found = coded.attend(q, 0, tokens), wanted = plain.attend(q, 0, tokens);
      for (std::int64_t i = 0; i < wanted->elements(); ++i) {
        ASSERT_NEAR(found->as<float>()[i], wanted->as<float>()[i], 2e-5F) << "element " << i;
      }
      if (shape.latent > 0 || shape.window > 0) continue;
      coded.observe(q);
      plain.observe(q);
      for (std::int64_t i = 0; i < plain.weights->elements(); ++i) {
        if (i / block_size / shape.kv_heads == plain.table.back()) continue;  // has empty slots
        ASSERT_NEAR(coded.weights->as<float>()[i], plain.weights->as<float>()[i], 1e-4F);
      }
    }
  }
}

TEST_P(KvCodes, give_a_row_the_same_bits_in_other_passes_with_other_kernels_and_threads) {
  constexpr std::int32_t tokens = 200;
  for (const AttentionShape& shape : shapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    const Input input = random_input(5, shape, tokens);
    const auto ops = make_ops(), others = make_ops(2, DType::f32, CpuIsa::avx2);
    Sequence whole(*ops, shape, dtype(), tokens), parts(*others, shape, dtype(), tokens);
    const HostTensor q = whole.store(input.rows, input.rope, 0, tokens);
    const HostTensor expected = whole.attend(q, 0, tokens);
    Random cuts(6);
    for (std::int32_t begin = 0; begin < tokens;) {
      const std::int32_t count = std::min(tokens - begin, cuts.integer(1, 70));
      const HostTensor query = parts.store(input.rows, input.rope, begin, count);
      expect_same_bits(parts.attend(query, begin, count), expected->rows(begin, count));
      begin += count;
    }
    const HostTensor a = whole.gathered(), b = parts.gathered();
    EXPECT_EQ(std::memcmp(a->data(), b->data(), a->bytes()), 0);
  }
}

TEST_P(KvCodes, have_the_fixed_scales_of_a_checkpoint_and_stop_at_the_largest_code) {
  if (dtype() == DType::i4x2) return;  // checkpoints have none of 4 bits
  AttentionShape shape{.heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 0.2F};
  shape.key_scale = 0.0078125F;  // exact in fp16
  shape.value_scale = 0.25F;
  const auto ops = make_ops();
  const Input input = random_input(7, shape, 40);
  Sequence coded(*ops, shape, dtype(), 40), exact(*ops, shape, DType::f32, 40);
  coded.store(input.rows, input.rope, 0, 40);
  exact.store(input.rows, input.rope, 0, 40);
  const HostTensor found = decoded(coded.gathered(), shape, dtype()), wanted = exact.gathered();
  const bool is_fp8 = dtype() == DType::f8_e4m3;
  const float largest = is_fp8 ? 448.0F : 127.0F;
  for (std::int64_t i = 0; i < wanted->elements(); ++i) {
    const bool is_key = i / shape.head_dim % 4 < 2;
    const float scale = is_key ? shape.key_scale : shape.value_scale;
    const float value = std::clamp(wanted->as<float>()[i] / scale, -largest, largest);
    const float code = is_fp8 ? e4m3_to_float(float_to_e4m3(value)) : std::nearbyint(value);
    EXPECT_EQ(found->as<float>()[i], code * scale) << "element " << i;
  }
}

TEST_P(KvCodes, of_keys_that_turn_are_rounded_anew_and_others_move_as_they_are) {
  for (const AttentionShape& shape :
       {with_residual({.heads = 4, .kv_heads = 2, .head_dim = 24, .scale = 0.2F}),
        AttentionShape{.heads = 4, .kv_heads = 1, .head_dim = 56, .scale = 0.1F, .latent = 40}}) {
    if (dtype() == DType::i4x2 && shape.latent > 0) continue;
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim);
    constexpr std::int32_t tokens = 90, kept = 50;
    const auto ops = make_ops();
    const Input input = random_input(8, shape, tokens);
    Sequence cache(*ops, shape, dtype(), tokens);
    cache.store(input.rows, input.rope, 0, tokens);
    const HostTensor before = decoded(cache.gathered(), shape, dtype());
    const CompactedSequence sequences[] = {{0, tokens, kept}};
    const HostTensor table = integers(cache.table);
    KvCompaction compaction;
    compaction.sequences = sequences;
    compaction.block_tables = table;
    compaction.block_size = block_size;
    compaction.first_kept = 4;
    compaction.turns_keys = true;
    ops->attention().compact(compaction, shape, input.rope, cache.layer);
    const HostTensor after = decoded(cache.gathered(), shape, dtype());
    const std::int64_t width = before.view()[1], dim = shape.head_dim, rotated = dim - shape.latent;
    for (std::int64_t entry = 0; entry < kept; ++entry) {
      const std::int64_t from = entry < 4 ? entry : entry + tokens - kept;
      const float* const old = before->as<float>() + from * width;
      const float* const found = after->as<float>() + entry * width;
      const float* const turn = input.rope->as<float>() + (from - entry) * rotated;
      for (std::int64_t i = 0; i < width; ++i) {
        const std::int64_t d = i % dim - shape.latent, half = rotated / 2;
        if (i / dim >= shape.kv_heads || d < 0) {  // values, and the latent part
          EXPECT_EQ(found[i], old[i]) << "entry " << entry << ", element " << i;
          continue;
        }
        const double cosine = turn[d % half], sine = turn[half + d % half];
        const double other = old[d < half ? i + half : i - half];
        const double turned = old[i] * cosine + (d < half ? other : -other) * sine;
        const DType stored = shape.key_dtype(dtype());
        const double step = stored == DType::f8_e4m3 ? 0.01 + std::abs(turned) / 15.9
                            : stored == DType::i4x2  ? 0.6
                                                     : 0.02;
        EXPECT_NEAR(found[i], turned, step) << "entry " << entry << ", element " << i;
      }
    }
  }
}

TEST_P(KvCodes, take_a_byte_each_or_half_of_one_and_two_for_a_scale) {
  const AttentionShape shape = with_residual({.heads = 8, .kv_heads = 2, .head_dim = 128});
  const auto bytes = [&](DType stored) { return stored == DType::i4x2 ? 64 : 128; };
  const std::int64_t of_token =
      2 * (bytes(shape.key_dtype(dtype())) + 2) + 2 * (bytes(shape.value_dtype(dtype())) + 2);
  EXPECT_EQ(shape.stored_elements(dtype()), of_token);
  const auto ops = make_ops();
  auto pages = ops->attention().allocate_kv(3, block_size, shape, dtype());
  ASSERT_TRUE(pages.ok());
  EXPECT_EQ(pages->first->bytes() + pages->second->bytes(),
            static_cast<std::size_t>(3 * block_size * of_token));
  const AttentionShape latent{.heads = 8, .kv_heads = 1, .head_dim = 576, .latent = 512};
  if (dtype() == DType::i4x2) {
    const auto refused = ops->attention().allocate_kv(3, block_size, latent, dtype());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("latent attention"), std::string::npos);
    return;
  }
  EXPECT_EQ(latent.stored_elements(dtype()), 576 + 2 * 2);
}

INSTANTIATE_TEST_SUITE_P(Cpu, KvCodes,
                         testing::Values(Codes{DType::i8}, Codes{DType::f8_e4m3},
                                         Codes{DType::i4x2}, Codes{DType::i4x2, KvResidual::keys},
                                         Codes{DType::i4x2, KvResidual::all}),
                         [](const auto& info) {
                           const KvResidual residual = info.param.residual;
                           return std::string(to_string(info.param.dtype)) +
                                  (residual == KvResidual::none   ? ""
                                   : residual == KvResidual::keys ? "_residual_keys"
                                                                  : "_residual");
                         });

}  // namespace
}  // namespace troupe
