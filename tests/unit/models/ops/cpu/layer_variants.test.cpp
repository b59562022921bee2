#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

/// Runs `compute` with each instruction set and several threads, expects `expected` and the same
/// bits each time.
void expect_everywhere(const Shape& shape, const std::vector<double>& expected, double tolerance,
                       const std::function<void(Ops&, const Tensor&)>& compute) {
  HostTensor first;
  for (const CpuIsa isa : supported_isas()) {
    for (const int threads : {1, 3}) {
      auto ops = make_ops(threads, DType::f32, isa);
      HostTensor out = floats(shape);
      compute(*ops, out);
      expect_near(out, expected, tolerance);
      if (first->empty()) {
        first = std::move(out);
      } else {
        expect_same_bits(out, first);
      }
    }
  }
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double activated(Activation activation, double x, double up) {
  switch (activation) {
    case Activation::gelu_tanh_gated:
      return gelu_tanh(x) * up;
    case Activation::clamped_gated: {
      const double gate = std::min(x, 7.0), bounded = std::clamp(up, -7.0, 7.0);
      return gate / (1 + std::exp(-1.702 * gate)) * (bounded + 1);
    }
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    default:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
}

TEST(Activate, agrees_with_double_precision_over_the_whole_range) {
  for (const Activation kind : {Activation::gelu_tanh_gated, Activation::clamped_gated,
                                Activation::gelu_tanh, Activation::gelu}) {
    const std::int64_t rows = 41, inner = 77, width = is_gated(kind) ? 2 * inner : inner;
    const HostTensor x = floats({rows, width});
    std::vector<double> expected;
    for (std::int64_t i = 0; i < rows * inner; ++i) {
      float* first = x->as<float>() + i / inner * width + i % inner;
      *first = -60.0F + 120.0F * static_cast<float>(i) / (rows * inner);
      if (is_gated(kind)) first[inner] = static_cast<float>(i % 19) - 9.0F;
      expected.push_back(activated(kind, *first, is_gated(kind) ? first[inner] : 0.0));
    }
    expect_everywhere({rows, inner}, expected, 3e-6,
                      [&](Ops& ops, const Tensor& out) { ops.dense().activate(x, kind, out); });
  }
}

TEST(Activate, keeps_not_a_number_and_stays_finite_at_the_ends) {
  for (const Activation kind : {Activation::gelu_tanh_gated, Activation::clamped_gated,
                                Activation::gelu_tanh, Activation::gelu}) {
    const HostTensor x = floats({1, is_gated(kind) ? 6 : 3}), out = floats({1, 3});
    const float values[] = {std::numeric_limits<float>::quiet_NaN(), -3e38F, 3e38F, 1, 1, 1};
    std::copy_n(values, x->elements(), x->as<float>());
    make_ops()->dense().activate(x, kind, out);
    EXPECT_TRUE(std::isnan(out->as<float>()[0]));
    EXPECT_LE(std::abs(out->as<float>()[1]), 1e-30F);
    EXPECT_TRUE(std::isfinite(out->as<float>()[2]));
  }
}

TEST(LayerNorm, agrees_with_double_precision_with_a_bias_and_without) {
  for (const std::int64_t width : {1, 15, 64, 100, 1000}) {
    Random random(3);
    const HostTensor x = random.normal({5, width}), weight = random.normal({width}),
                     bias = random.normal({width});
    for (const Tensor& added : {bias.view(), Tensor()}) {
      std::vector<double> expected;
      for (std::int64_t r = 0; r < 5; ++r) {
        const float* row = x->as<float>() + r * width;
        double mean = 0, variance = 0;
        for (std::int64_t i = 0; i < width; ++i) mean += row[i] / static_cast<double>(width);
        for (std::int64_t i = 0; i < width; ++i) {
          variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i) {
          expected.push_back((row[i] - mean) / std::sqrt(variance + 1e-5) * weight->as<float>()[i] +
                             (added.empty() ? 0.0 : added.as<float>()[i]));
        }
      }
      expect_everywhere({5, width}, expected, 1e-5, [&](Ops& ops, const Tensor& out) {
        ops.dense().layer_norm(x, weight, added, 1e-5F, out);
      });
    }
  }
}

TEST(Scale, multiplies_and_then_caps) {
  Random random(4);
  const HostTensor x = random.normal({7, 45});
  for (const float cap : {0.0F, 2.0F}) {
    std::vector<double> expected;
    for (const float value : x->span<float>()) {
      const double scaled = value * 3.0;
      expected.push_back(cap > 0.0F ? cap * std::tanh(scaled / cap) : scaled);
    }
    expect_everywhere({7, 45}, expected, 1e-6, [&](Ops& ops, const Tensor& out) {
      ops.memory().upload(x, out);
      ops.dense().scale(out, 3.0F, cap);
    });
  }
}

TEST(NormProjections, of_two_ranks_have_the_bits_of_one) {
  // Four query heads and two KV heads of 24: all on one rank, or half of them on each of two.
  constexpr std::int64_t tokens = 3, dim = 24, width = 8 * dim;
  Random random(5);
  const HostTensor qkv = random.normal({tokens, width}), q_weight = random.normal({4 * dim}),
                   k_weight = random.normal({2 * dim});
  auto ops = make_ops();
  const HostTensor sums = floats({tokens, 6}), whole = floats({tokens, width});
  ops->memory().upload(qkv, whole);
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = dim};
  ops->attention().square_sums(whole, shape, sums);
  ops->attention().norm_projections(
      whole, shape,
      {.square_sums = sums, .q_weight = q_weight, .k_weight = k_weight, .eps = 1e-6F});

  const AttentionShape half{.heads = 2, .kv_heads = 1, .head_dim = dim};
  const std::int64_t of_half = 4 * dim;
  const HostTensor all = floats({2 * tokens, 3}), parts = floats({2 * tokens, of_half});
  const auto copy = [&](float* row, float* part, std::int64_t rank, bool back) {
    for (std::int64_t i = 0; i < of_half; ++i) {
      const std::int64_t head = i / dim;  // two of queries, one of keys, one of values
      const std::int64_t from = head < 2 ? 2 * rank + head : 4 + 2 * (head - 2) + rank;
      float& in_row = row[from * dim + i % dim];
      back ? void(in_row = part[i]) : void(part[i] = in_row);
    }
  };
  const HostTensor joined = floats({tokens, width});
  ops->memory().upload(qkv, joined);
  for (const bool back : {false, true}) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const Tensor part = parts->rows(rank * tokens, tokens);
      if (back) {
        ops->attention().norm_projections(
            part, half,
            {.square_sums = all,
             .ranks = 2,
             .q_weight = Tensor(q_weight->as<float>() + rank * 2 * dim, DType::f32, {2 * dim}),
             .k_weight = Tensor(k_weight->as<float>() + rank * dim, DType::f32, {dim}),
             .eps = 1e-6F});
      }
      for (std::int64_t t = 0; t < tokens; ++t) {
        copy(joined->as<float>() + t * width, part.as<float>() + t * of_half, rank, back);
      }
      if (!back) ops->attention().square_sums(part, half, all->rows(rank * tokens, tokens));
    }
  }
  expect_same_bits(joined, whole);
}

}  // namespace
}  // namespace troupe
