#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

std::vector<double> normalised(const Tensor& x, const Tensor& weight, double eps) {
  const std::int64_t width = weight[0];
  std::vector<double> out;
  for (std::int64_t r = 0; r < x[0]; ++r) {
    const float* row = x.as<float>() + r * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += double{row[i]} * row[i];
    for (std::int64_t i = 0; i < width; ++i) {
      out.push_back(row[i] / std::sqrt(sum / width + eps) * weight.as<float>()[i]);
    }
  }
  return out;
}

TEST(RmsNorm, agrees_with_double_precision_and_gives_the_same_bits_on_any_threads_and_isa) {
  for (const std::int64_t width : {1, 15, 16, 64, 100, 256, 1000}) {
    for (const std::int64_t rows : {1, 3, 200}) {
      SCOPED_TRACE(testing::Message() << "seed 1, [" << rows << ", " << width << "]");
      Random random(1);
      const HostTensor x = random.normal({rows, width}), weight = random.normal({width});
      const HostTensor more = random.normal({rows, width});
      HostTensor first, first_added;
      for (const CpuIsa isa : supported_isas()) {
        for (const int threads : {1, 2, 3}) {
          auto ops = make_ops(threads, DType::f32, isa);
          HostTensor out = floats({rows, width}), added = floats({rows, width});
          HostTensor residual = floats({rows, width});
          ops->memory().upload(x, residual);
          ops->dense().rms_norm(x, weight, 1e-5F, out);
          expect_near(out, normalised(x, weight, 1e-5), 2e-6);
          ops->dense().add_rms_norm(residual, more, weight, 1e-5F, added);
          HostTensor sum = floats({rows, width});
          ops->memory().upload(x, sum);
          ops->dense().add(sum, more);
          expect_same_bits(sum, residual);
          for (std::int64_t i = 0; i < x->elements(); ++i) {
            ASSERT_EQ(residual->as<float>()[i], x->as<float>()[i] + more->as<float>()[i]);
          }
          expect_near(added, normalised(residual, weight, 1e-5), 2e-6);
          if (first->empty()) {
            first = std::move(out);
            first_added = std::move(added);
          } else {
            expect_same_bits(out, first);
            expect_same_bits(added, first_added);
          }
        }
      }
    }
  }
}

TEST(RmsNorm, works_in_place) {
  Random random(2);
  const HostTensor x = random.normal({5, 100}), weight = random.normal({100});
  auto ops = make_ops();
  HostTensor out = floats({5, 100});
  ops->dense().rms_norm(x, weight, 1e-6F, out);
  ops->dense().rms_norm(x, weight, 1e-6F, x);
  expect_same_bits(x, out);
}

TEST(SiluMul, agrees_with_double_precision_to_a_few_ulp_over_the_whole_range) {
  for (const CpuIsa isa : supported_isas()) {
    auto ops = make_ops(2, DType::f32, isa);
    const std::int64_t rows = 61, inner = 333;
    HostTensor gate_up = floats({rows, 2 * inner}), out = floats({rows, inner});
    for (std::int64_t i = 0; i < rows * inner; ++i) {
      const float gate = -80.0F + 160.0F * static_cast<float>(i) / (rows * inner);
      gate_up->as<float>()[i / inner * 2 * inner + i % inner] = gate;
      gate_up->as<float>()[i / inner * 2 * inner + inner + i % inner] = 1.0F;
    }
    ops->dense().silu_mul(gate_up, out);
    double worst = 0;
    for (std::int64_t i = 0; i < rows * inner; ++i) {
      const double gate = gate_up->as<float>()[i / inner * 2 * inner + i % inner];
      const double expected = gate / (1 + std::exp(-gate));
      if (expected == 0) continue;
      worst = std::max(worst, std::abs(out->as<float>()[i] / expected - 1));
    }
    EXPECT_LT(worst, 4 * 0x1p-23) << "largest relative error";
  }
}

TEST(SiluMul, keeps_not_a_number_and_stays_finite_at_the_ends) {
  auto ops = make_ops();
  HostTensor gate_up = floats({1, 6}), out = floats({1, 3});
  const float values[] = {std::numeric_limits<float>::quiet_NaN(), -3e38F, 3e38F, 1, 1, 1};
  std::copy(std::begin(values), std::end(values), gate_up->as<float>());
  ops->dense().silu_mul(gate_up, out);
  EXPECT_TRUE(std::isnan(out->as<float>()[0]));
  EXPECT_LE(std::abs(out->as<float>()[1]), 1e-35F);
  EXPECT_EQ(out->as<float>()[2], 3e38F);
}

TEST(Route, picks_the_largest_first_and_the_lower_index_of_equals) {
  for (const CpuIsa isa : supported_isas()) {
    auto ops = make_ops(1, DType::f32, isa);
    HostTensor logits = floats({2, 5});
    const float values[] = {1, 3, 3, 2, 0, 0, 0, 0, 0, 0};
    std::copy(std::begin(values), std::end(values), logits->as<float>());
    HostTensor ids(DType::i32, {2, 3}), weights = floats({2, 3});
    ops->moe().route(logits, {}, {3, true}, ids, weights);
    const auto found = ids->span<std::int32_t>();
    EXPECT_EQ(std::vector(found.begin(), found.end()),
              (std::vector<std::int32_t>{1, 2, 3, 0, 1, 2}));
    const double total = 2 * std::exp(3.0) + std::exp(2.0);
    expect_near(weights,
                {std::exp(3.0) / total, std::exp(3.0) / total, std::exp(2.0) / total, 1 / 3.0,
                 1 / 3.0, 1 / 3.0},
                1e-6);
  }
}

TEST(Route, picks_different_experts_where_logits_are_not_finite) {
  for (const CpuIsa isa : supported_isas()) {
    auto ops = make_ops(1, DType::f32, isa);
    HostTensor logits = floats({2, 5});
    std::fill_n(logits->as<float>(), 5, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(logits->as<float>() + 5, 5, 1.0F);
    logits->as<float>()[7] = std::numeric_limits<float>::infinity();
    HostTensor ids(DType::i32, {2, 3}), weights = floats({2, 3});
    ops->moe().route(logits, {}, {3, true}, ids, weights);
    for (std::int64_t token = 0; token < 2; ++token) {
      const auto chosen = ids->rows(token, 1).span<std::int32_t>();
      EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), 3U) << "token " << token;
    }
  }
}

TEST(Route, agrees_with_double_precision_and_gives_the_same_bits_on_any_threads_and_isa) {
  const std::int64_t tokens = 300;
  for (const std::int64_t experts : {4, 16, 60, 128}) {
    SCOPED_TRACE(testing::Message() << "seed 3, " << experts << " experts");
    Random random(3);
    const HostTensor logits = random.normal({tokens, experts}, 2.0F);
    HostTensor first;
    for (const CpuIsa isa : supported_isas()) {
      for (const int threads : {1, 3}) {
        auto ops = make_ops(threads, DType::f32, isa);
        HostTensor ids(DType::i32, {tokens, 4}), weights = floats({tokens, 4});
        ops->moe().route(logits, {}, {4, false}, ids, weights);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < tokens * 4; ++i) {
          const float* row = logits->as<float>() + i / 4 * experts;
          double sum = 0;
          for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(double{row[e]});
          expected.push_back(std::exp(double{row[ids->as<std::int32_t>()[i]]}) / sum);
          if (i % 4 != 0) {
            ASSERT_GE(weights->as<float>()[i - 1], weights->as<float>()[i]);
          }
        }
        expect_near(weights, expected, 1e-6);
        if (first->empty())
          first = std::move(weights);
        else
          expect_same_bits(weights, first);
      }
    }
  }
}

TEST(Combine, adds_the_experts_in_top_k_order_by_fused_multiply_adds) {
  for (const CpuIsa isa : supported_isas()) {
    Random random(5);
    const std::int64_t tokens = 130, top_k = 3, width = 100;
    const HostTensor x = random.normal({tokens * top_k, width});
    const HostTensor weights = random.normal({tokens, top_k});
    HostTensor out = floats({tokens, width});
    make_ops(2, DType::f32, isa)->moe().combine(x, weights, out);
    for (std::int64_t i = 0; i < tokens * width; ++i) {
      const std::int64_t t = i / width;
      const auto part = [&](std::int64_t c) {
        return x->as<float>()[(t * top_k + c) * width + i % width];
      };
      float sum = part(0) * weights->as<float>()[t * top_k];
      for (int c = 1; c < top_k; ++c) {
        sum = std::fma(part(c), weights->as<float>()[t * top_k + c], sum);
      }
      ASSERT_EQ(out->as<float>()[i], sum) << "seed 5, token " << t << ", column " << i % width;
    }
  }
}

TEST(Embed, gives_zeros_for_rows_of_other_ranks_and_never_a_negative_zero) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Random random(7);
    HostTensor table = random.normal_bf16({10, 37});
    table->as<BFloat16>()[3 * 37 + 5] = to_bfloat16(-0.0F);
    table->as<BFloat16>()[3 * 37 + 36] = to_bfloat16(-0.0F);
    auto ops = make_ops();
    auto prepared =
        ops->weights().prepare_table(dtype == DType::f32 ? widened(table).view() : table.view());
    ASSERT_TRUE(prepared.ok());
    EXPECT_EQ(prepared.value()->dtype(), dtype);
    const HostTensor ids = integers({103, 99, 110, 109, 100});
    HostTensor out = floats({5, 37});
    std::memset(out->data(), 0xff, out->bytes());
    ops->dense().embed(*prepared, ids, 100, out);
    for (int i = 0; i < 5; ++i) {
      const int row = ids->as<std::int32_t>()[i] - 100;
      for (int j = 0; j < 37; ++j) {
        const float found = out->as<float>()[i * 37 + j];
        const float expected =
            row < 0 || row >= 10 ? 0.0F : to_float(table->as<BFloat16>()[row * 37 + j]);
        ASSERT_EQ(found, expected) << to_string(dtype) << ", token " << i << ", column " << j;
        ASSERT_FALSE(found == 0 && std::signbit(found)) << "token " << i << ", column " << j;
      }
    }
  }
}

TEST(GatherRows, copies_the_named_rows) {
  Random random(9);
  const HostTensor x = random.normal({20, 13});
  HostTensor out = floats({3, 13});
  make_ops()->dense().gather_rows(x, integers({19, 0, 7}), out);
  expect_same_bits(out->rows(0, 1), x->rows(19, 1));
  expect_same_bits(out->rows(1, 1), x->rows(0, 1));
  expect_same_bits(out->rows(2, 1), x->rows(7, 1));
}

TEST(JoinColumns, puts_parts_side_by_side_and_leaves_out_what_pads_the_last) {
  constexpr std::int64_t ranks = 3, rows = 5, width = 4, columns = 10;
  Random random(10);
  const HostTensor parts = random.normal({ranks * rows, width});
  const HostTensor out = floats({rows, columns});
  make_ops(2)->dense().concat_columns(parts, out);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t from = (column / width * rows + row) * width + column % width;
      ASSERT_EQ(out->as<float>()[row * columns + column], parts->as<float>()[from])
          << "row " << row << ", column " << column;
    }
  }
}

TEST(TreeSum, adds_parts_of_rows_as_a_binary_tree) {
  constexpr std::int64_t parts = 4, rows = 700, width = 33;
  Random random(11);
  const HostTensor x = random.normal({parts * rows, width});
  const HostTensor out = floats({rows, width});
  make_ops(2)->dense().tree_sum(x, out);
  const float* p = x->as<float>();
  constexpr std::int64_t stride = rows * width;
  for (std::int64_t i = 0; i < stride; ++i) {
    const float sum = (p[i] + p[stride + i]) + (p[2 * stride + i] + p[3 * stride + i]);
    ASSERT_EQ(out->as<float>()[i], sum) << "seed 11, element " << i;
  }
}

TEST(Ops, check_shapes_before_they_compute_in_builds_with_assertions) {
  if (!op_checks::enabled) GTEST_SKIP() << "this build has no assertions";
  const HostTensor gate_up = floats({3, 8}), out = floats({3, 3});
  EXPECT_DEATH(make_ops()->dense().silu_mul(gate_up, out), "silu_mul: gate_up");
}

TEST(CpuOps, refuses_no_threads_and_foreign_dtypes) {
  EXPECT_FALSE(make_cpu_ops({0, DType::f32, CpuIsa::best}).ok());
  EXPECT_FALSE(make_cpu_ops({1, DType::f16, CpuIsa::best}).ok());
}

}  // namespace
}  // namespace troupe
