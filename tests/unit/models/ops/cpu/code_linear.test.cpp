// Products with codes, beside the same with the numbers that they are.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/stored_matrix.hpp"
#include "tests/support/random_codes.hpp"
#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

HostTensor numbers_of(const StoredMatrix& matrix, WeightEncoding encoding) {
  return numbers_of(matrix, coded_form(matrix, encoding).form.value());
}

HostTensor multiply(Ops& ops, const StoredMatrix& weight, const Tensor& x, int segments = 1,
                    WeightEncoding encoding = WeightEncoding::plain) {
  auto linear = ops.weights().load(weight, segments, encoding);
  EXPECT_TRUE(linear.ok());
  EXPECT_NE((*linear)->kernel().find("codes"), std::string::npos) << (*linear)->kernel();
  HostTensor out = floats({x[0], weight.rows});
  ops.dense().linear(**linear, x, out);
  return out;
}

StoredMatrix stored_matrix(const Tensor& weight) {
  return whole_matrix({.view = weight}, weight[0], weight[1]);
}

/// The numbers of rows that products see: with W8A8 those of codes, a scale for each row.
HostTensor seen_rows(const Tensor& x, WeightEncoding encoding) {
  HostTensor seen = floats({x[0], x[1]});
  const bool rounds = encoding == WeightEncoding::w8a8 || encoding == WeightEncoding::plain_w8a8;
  for (std::int64_t r = 0; r < x[0]; ++r) {
    const float* const row = x.as<float>() + r * x[1];
    float largest = 0;
    for (std::int64_t i = 0; i < x[1]; ++i) largest = std::max(largest, std::abs(row[i]));
    for (std::int64_t i = 0; i < x[1]; ++i) {
      seen->as<float>()[r * x[1] + i] =
          rounds ? std::nearbyint(row[i] * (127.0F / largest)) * (largest / 127.0F) : row[i];
    }
  }
  return seen;
}

class CodeLinear : public testing::TestWithParam<CodesCase> {};

/// Numbers that widening would round differ from those multiplied by this much at the most.
TEST_P(CodeLinear, has_the_numbers_that_the_format_decodes_but_for_their_rounding) {
  Random random(5);
  const RandomCodes made = random_codes(random.engine(), GetParam(), 40, 264);
  const HostTensor found = numbers_of(made.matrix, WeightEncoding::plain);
  std::vector<float> decoded(264);
  for (std::int64_t r = 0; r < 40; ++r) {
    const StoredTensor& stored = made.matrix.parts.front().matrix;
    stored.format->decode(stored, r, 0, 264, decoded.data());
    for (std::int64_t i = 0; i < 264; ++i) {
      const float expected = decoded[static_cast<std::size_t>(i)];
      ASSERT_NEAR(found->as<float>()[r * 264 + i], expected, std::abs(expected) * 0x1p-8F)
          << "row " << r << ", column " << i;
    }
  }
}

TEST_P(CodeLinear, agrees_with_double_precision_on_odd_shapes) {
  for (const auto& [n, k] : {std::pair{1, 1}, {31, 7}, {33, 130}, {150, 704}, {70, 333}}) {
    Random random(7);
    const RandomCodes made = random_codes(random.engine(), GetParam(), n, k);
    const HostTensor numbers = numbers_of(made.matrix, WeightEncoding::plain);
    double largest = 0;
    for (const float number : numbers->span<float>()) {
      largest = std::max(largest, std::abs(double{number}));
    }
    for (const std::int64_t m : {1, 2, 3, 5, 8, 13, 30}) {
      const HostTensor x = random.normal({m, k});
      const HostTensor seen = seen_rows(x, GetParam().encoding);
      for (const CpuIsa isa : supported_isas()) {
        SCOPED_TRACE(testing::Message()
                     << n << " x " << k << ", " << m << " rows, isa " << static_cast<int>(isa));
        auto ops = make_ops(2, DType::f32, isa);
        expect_near(multiply(*ops, made.matrix, x, 1, GetParam().encoding), product(numbers, seen),
                    1e-6 * (1.0 + largest * std::sqrt(k)));
      }
    }
  }
}

TEST_P(CodeLinear, gives_a_row_the_same_bits_in_every_batch_on_all_threads_and_instruction_sets) {
  Random random(11);
  const RandomCodes made = random_codes(random.engine(), GetParam(), 150, 704);
  const HostTensor x = random.normal({100, 704});
  for (const int segments : {1, 8}) {  // 704 / 8 = 88 columns end inside a group
    auto narrow = make_ops(1, DType::f32, CpuIsa::avx2);
    const WeightEncoding encoding = GetParam().encoding;
    const HostTensor all = multiply(*narrow, made.matrix, x, segments, encoding);
    for (const CpuIsa isa : supported_isas()) {
      for (const int threads : {1, 3}) {
        auto ops = make_ops(threads, DType::f32, isa);
        for (const std::int64_t m : {1, 2, 3, 4, 6, 7, 12, 13, 25, 64, 100}) {
          SCOPED_TRACE(testing::Message() << segments << " segments, isa " << static_cast<int>(isa)
                                          << ", " << threads << " threads, " << m << " rows");
          expect_same_bits(multiply(*ops, made.matrix, x->rows(100 - m, m), segments, encoding),
                           all->rows(100 - m, m));
        }
      }
    }
  }
}

TEST_P(CodeLinear, gives_ranks_that_share_k_partial_sums_whose_tree_is_the_whole) {
  Random random(13);
  const std::int64_t n = 64, k = 704, m = 3;
  const RandomCodes made = random_codes(random.engine(), GetParam(), n, k);
  const HostTensor x = random.normal({m, k});
  auto ops = make_ops();
  const WeightEncoding encoding = GetParam().encoding;
  const HostTensor whole = multiply(*ops, made.matrix, x, 8, encoding);
  for (const int ranks : {2, 4}) {
    std::vector<HostTensor> parts;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t width = k / ranks;
      parts.push_back(multiply(*ops, columns_of(made.matrix, r * width, width),
                               columns_of(x, r * width, width), 8 / ranks, encoding));
    }
    for (int distance = 1; distance < ranks; distance *= 2) {
      for (int r = 0; r < ranks; r += 2 * distance) {
        for (std::int64_t i = 0; i < m * n; ++i) {
          parts[r]->as<float>()[i] += parts[r + distance]->as<float>()[i];
        }
      }
    }
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    expect_same_bits(parts[0], whole);
  }
}

const CodesCase rounding_cases[] = {
    {"int8 by row", {.coding = WeightCoding::int8}, DType::f32, WeightEncoding::plain_w8a8},
    {"packed int8 by 24",
     {.coding = WeightCoding::packed_int8, .group_columns = 24},
     DType::bf16,
     WeightEncoding::plain_w8a8}};

INSTANTIATE_TEST_SUITE_P(RoundedRows, CodeLinear, testing::ValuesIn(rounding_cases),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Formats, CodeLinear, testing::ValuesIn(codes_cases),
                         [](const auto& info) { return info.param.name(); });

struct Made {
  WeightEncoding encoding;
  double error;  // of a number, as a part of the largest of its group
};

TEST(CodesOfNumbers, are_near_them_and_the_same_on_ranks_that_share_a_row) {
  for (const Made& made : {Made{WeightEncoding::int8, 0.5 / 127},
                           {WeightEncoding::int4, 1.0 / 15 + 0.005},
                           {WeightEncoding::w8a8, 0.5 / 127},
                           {WeightEncoding::fp8, 0.0625}}) {
    SCOPED_TRACE(testing::Message() << "encoding " << static_cast<int>(made.encoding));
    Random random(17);
    const std::int64_t n = 70, k = 704, m = 2;
    for (const HostTensor& weight : {random.normal({n, k}), random.normal_bf16({n, k})}) {
      const StoredMatrix matrix = stored_matrix(weight);
      const HostTensor numbers = numbers_of(matrix, made.encoding);
      for (std::int64_t r = 0; r < n; ++r) {
        const HostTensor row = weight->dtype() == DType::bf16 ? widened(weight->rows(r, 1))
                                                              : HostTensor(DType::f32, {1, k});
        if (weight->dtype() == DType::f32) {
          std::copy_n(weight->as<float>() + r * k, k, row->as<float>());
        }
        float largest = 0;
        for (const float number : row->span<float>()) largest = std::max(largest, std::abs(number));
        for (std::int64_t i = 0; i < k; ++i) {
          ASSERT_NEAR(numbers->as<float>()[r * k + i], row->as<float>()[i],
                      made.error * largest * 1.01);
        }
      }
      const HostTensor x = random.normal({m, k});
      auto ops = make_ops(2);
      const HostTensor whole = multiply(*ops, matrix, x, 8, made.encoding);
      auto left =
          multiply(*ops, columns_of(matrix, 0, 352), columns_of(x, 0, 352), 4, made.encoding);
      const auto right =
          multiply(*ops, columns_of(matrix, 352, 352), columns_of(x, 352, 352), 4, made.encoding);
      for (std::int64_t i = 0; i < m * n; ++i) left->as<float>()[i] += right->as<float>()[i];
      expect_same_bits(left, whole);
    }
  }
}

TEST(CodesOfNumbers, take_a_half_and_a_quarter_of_the_memory_of_bf16) {
  Random random(19);
  const HostTensor weight = random.normal_bf16({256, 1024});
  auto ops = make_ops(1);
  const auto bytes_of = [&](WeightEncoding encoding) {
    return static_cast<double>((*ops->weights().prepare(weight, 1, encoding))->bytes());
  };
  const double bf16 = bytes_of(WeightEncoding::plain);
  EXPECT_LT(bytes_of(WeightEncoding::int8) / bf16, 0.503);
  EXPECT_LT(bytes_of(WeightEncoding::int4) / bf16, 0.26);
}

TEST(CodesOfNumbers, of_rows_that_are_not_finite_are_not_a_number) {
  for (const WeightEncoding encoding :
       {WeightEncoding::int8, WeightEncoding::int4, WeightEncoding::fp8, WeightEncoding::w8a8}) {
    HostTensor weight = floats({2, 8}), x = floats({1, 8});
    for (int i = 0; i < 8; ++i) x->as<float>()[i] = weight->as<float>()[8 + i] = 1.0F;
    weight->as<float>()[3] = INFINITY;
    auto ops = make_ops(1);
    const HostTensor out = multiply(*ops, stored_matrix(weight), x, 1, encoding);
    EXPECT_TRUE(std::isnan(out->as<float>()[0]));
    EXPECT_NEAR(out->as<float>()[1], 8.0F, 0.6F);
    for (const float bad : {INFINITY, NAN}) {
      x->as<float>()[5] = bad;
      const HostTensor of_bad = multiply(*ops, stored_matrix(weight), x, 1, encoding);
      EXPECT_FALSE(std::isfinite(of_bad->as<float>()[1])) << bad;
    }
  }
}

TEST(RoundedRows, are_zero_if_they_are_zero_and_keep_the_smallest) {
  Random random(37);
  const HostTensor weight = random.normal({40, 96});
  HostTensor x = floats({3, 96});
  x->as<float>()[96 + 7] = 1e-20F;
  x->as<float>()[2 * 96 + 7] = 1e-40F;  // too small to count
  auto ops = make_ops(1);
  const HostTensor out = multiply(*ops, stored_matrix(weight), x, 1, WeightEncoding::w8a8);
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(out->as<float>()[i], 0.0F);
    EXPECT_NEAR(out->as<float>()[40 + i], weight->as<float>()[i * 96 + 7] * 1e-20F, 2e-22F);
    EXPECT_EQ(out->as<float>()[80 + i], 0.0F);
  }
}

TEST(CodedForm, of_parts_in_different_schemes_is_none_and_says_why) {
  Random random(23);
  RandomCodes four = random_codes(random.engine(), codes_cases[4], 32, 128),
              eight = random_codes(random.engine(), codes_cases[0], 32, 128);
  StoredMatrix both = four.matrix;
  both.rows = 64;
  both.parts.push_back(eight.matrix.parts.front());
  EXPECT_FALSE(coded_form(both, WeightEncoding::plain).form);
  EXPECT_EQ(coded_form(both, WeightEncoding::plain).obstacle,
            "its parts are stored in different schemes");
  auto ops = make_ops(1);
  auto linear = ops->weights().load(both, 1, WeightEncoding::plain);
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ((*linear)->kernel(), "bf16");
}

TEST(CodedForm, of_rows_that_no_part_fills_is_zero) {
  Random random(29);
  for (const CodesCase& c : codes_cases) {
    SCOPED_TRACE(c.what);
    RandomCodes made = random_codes(random.engine(), c, 40, 96);
    made.matrix.rows = 45;
    const HostTensor x = random.normal({2, 96});
    auto ops = make_ops(1);
    const HostTensor out = multiply(*ops, made.matrix, x);
    for (std::int64_t i = 40; i < 45; ++i) {
      EXPECT_EQ(out->as<float>()[i], 0.0F);
      EXPECT_EQ(out->as<float>()[45 + i], 0.0F);
    }
  }
}

// Experts of any form are multiplied by the same kernels, with gathered and scattered rows.
TEST(CodeGroupedLinear, gives_every_routed_row_the_bits_of_its_experts_matrix_alone) {
  for (const CodesCase& c : codes_cases) {
    SCOPED_TRACE(c.what);
    Random random(31);
    const std::int64_t tokens = 40, top_k = 2, experts = 4, n = 72, k = 96;
    std::vector<RandomCodes> all;
    std::vector<StoredMatrix> matrices;
    for (int e = 0; e < experts; ++e) all.push_back(random_codes(random.engine(), c, n, k));
    for (const RandomCodes& one : all) matrices.push_back(one.matrix);
    const HostTensor ids(DType::i32, {tokens, top_k}), x = random.normal({tokens, k});
    for (std::int32_t t = 0; t < tokens; ++t) {
      ids->as<std::int32_t>()[2 * t] = t % 3 == 0 ? 0 : t % 4;
      ids->as<std::int32_t>()[2 * t + 1] = (ids->as<std::int32_t>()[2 * t] + 1) % 4;
    }
    auto ops = make_ops(2);
    auto grouped = ops->weights().load_grouped(matrices, 2, WeightEncoding::plain);
    ASSERT_TRUE(grouped.ok());
    EXPECT_NE((*grouped)->kernel().find("codes"), std::string::npos);
    const HostTensor offsets(DType::i32, {experts + 1}), source(DType::i32, {tokens * top_k});
    const ExpertBatch batch{offsets, source};
    ops->moe().permute(ids, 0, batch);
    HostTensor out = floats({tokens * top_k, n});
    ops->moe().grouped_linear(**grouped, x, batch, top_k, true, true, out);
    for (std::int64_t i = 0; i < tokens * top_k; ++i) {
      const auto expert = static_cast<std::size_t>(ids->as<std::int32_t>()[i]);
      expect_same_bits(out->rows(i, 1), multiply(*ops, matrices[expert], x->rows(i / top_k, 1), 2));
    }
  }
}

}  // namespace
}  // namespace troupe
