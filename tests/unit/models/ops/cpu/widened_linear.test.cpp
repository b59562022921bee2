// Matrices that round activations to int8 until they are widened.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "models/ops/stored_matrix.hpp"
#include "tests/support/random_codes.hpp"
#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

using enum WeightEncoding;

HostTensor multiply(Ops& ops, const Linear& weight, const Tensor& x) {
  HostTensor out = floats({x[0], weight.out_features()});
  ops.dense().linear(weight, x, out);
  return out;
}

TEST(WidenedLinear, has_the_bits_of_a_matrix_that_never_rounded_rows) {
  const CodesCase by_24{
      "packed int8 by 24", {.coding = WeightCoding::packed_int8, .group_columns = 24}, DType::bf16};
  for (const CpuIsa isa : supported_isas()) {
    auto ops = make_ops(3, DType::f32, isa);
    // Runs of 7, 88, 333 and 13 columns, and of groups that segments cut: not in fours.
    for (const auto& [n, k, segments] :
         {std::tuple{31, 7, 1}, {150, 704, 8}, {70, 333, 1}, {33, 130, 2}, {96, 104, 8}}) {
      for (const bool of_numbers : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << n << " x " << k << " in " << segments << " segments, "
                     << (of_numbers ? "numbers" : "codes") << ", isa " << static_cast<int>(isa));
        Random random(41);
        const HostTensor numbers = random.normal({n, k});
        const RandomCodes codes = random_codes(random.engine(), by_24, n, k);
        const StoredMatrix stored =
            of_numbers ? stored_matrix_of(numbers, DType::f32) : codes.matrix;
        auto rounding = ops->weights().load(stored, segments, of_numbers ? w8a8 : plain_w8a8);
        auto other = ops->weights().load(stored, segments, of_numbers ? int8 : plain);
        ASSERT_TRUE(rounding.ok() && other.ok());
        EXPECT_TRUE((*rounding)->rounds_rows());
        EXPECT_FALSE((*other)->rounds_rows());
        const std::size_t bytes = (*rounding)->bytes();
        const HostTensor x = random.normal({17, k});
        const HostTensor before = multiply(*ops, **rounding, x);
        const HostTensor expected = multiply(*ops, **other, x);
        EXPECT_NE(std::memcmp(before->data(), expected->data(), expected->bytes()), 0);
        for (int times = 0; times < 2; ++times) {
          ASSERT_TRUE(ops->weights().widen(**rounding).ok());
          EXPECT_FALSE((*rounding)->rounds_rows());
          EXPECT_EQ((*rounding)->kernel(), (*other)->kernel());
          EXPECT_EQ((*rounding)->bytes(), bytes);
          for (const std::int64_t rows : {1, 3, 17}) {
            expect_same_bits(multiply(*ops, **rounding, x->rows(0, rows)), expected->rows(0, rows));
          }
        }
      }
    }
  }
}

TEST(WidenedLinear, of_experts_has_the_bits_of_experts_that_never_rounded_rows) {
  Random random(43);
  constexpr std::int64_t experts = 3, n = 70, k = 106, rows = 12;
  std::vector<HostTensor> numbers;
  std::vector<Tensor> views;
  for (int e = 0; e < experts; ++e) {
    numbers.push_back(random.normal({n, k}));
    views.push_back(numbers.back());
  }
  auto ops = make_ops(2);
  auto rounding = ops->weights().prepare_grouped(views, 2, w8a8);
  auto other = ops->weights().prepare_grouped(views, 2, int8);
  ASSERT_TRUE(rounding.ok() && other.ok());
  EXPECT_TRUE((*rounding)->rounds_rows());
  ASSERT_TRUE(ops->weights().widen(**rounding).ok());
  EXPECT_FALSE((*rounding)->rounds_rows());
  const HostTensor ids(DType::i32, {rows, 1}), x = random.normal({rows, k});
  for (int i = 0; i < rows; ++i) ids->as<std::int32_t>()[i] = i % experts;
  const HostTensor offsets(DType::i32, {experts + 1}), source(DType::i32, {rows});
  const ExpertBatch batch{offsets, source};
  ops->moe().permute(ids, 0, batch);
  HostTensor found = floats({rows, n}), expected = floats({rows, n});
  ops->moe().grouped_linear(**rounding, x, batch, 1, true, true, found);
  ops->moe().grouped_linear(**other, x, batch, 1, true, true, expected);
  expect_same_bits(found, expected);
}

class WatchedRows : public testing::Test {
 protected:
  /// The peak of products with x, above what it was before.
  float peak_of(const Linear& weight, const Tensor& x, float before = 0.0F) {
    const HostTensor peak = floats({1});
    peak->as<float>()[0] = before;
    ops_->dense().watch_rows(peak);
    (void)multiply(*ops_, weight, x);
    ops_->dense().watch_rows({});
    (void)multiply(*ops_, weight, HostTensor(random_.normal({3, weight.in_features()}, 1e6F)));
    return peak->as<float>()[0];
  }
  std::unique_ptr<Linear> make(WeightEncoding encoding, std::int64_t k = 330) {
    return *ops_->weights().prepare(random_.normal({300, k}), 2, encoding);
  }

  Random random_{47};
  std::unique_ptr<Ops> ops_ = make_ops(3);
};

TEST_F(WatchedRows, tell_their_largest_magnitude_whatever_its_sign_and_place) {
  const auto weight = make(w8a8);
  for (const std::int64_t rows : {1, 5, 64, 200}) {
    for (const float value : {7000.5F, -7000.5F}) {
      HostTensor x = random_.normal({rows, 330});
      x->as<float>()[rows * 330 - 1 - 165] = value;
      EXPECT_EQ(peak_of(*weight, x), 7000.5F) << rows << " rows";
      EXPECT_EQ(peak_of(*weight, x, 7001.0F), 7001.0F);
    }
  }
  EXPECT_EQ(peak_of(*weight, floats({2, 330})), 0.0F);
}

TEST_F(WatchedRows, are_infinite_if_they_are_not_finite) {
  const auto weight = make(w8a8);
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    HostTensor x = random_.normal({4, 330});
    x->as<float>()[2 * 330 + 5] = value;
    EXPECT_EQ(peak_of(*weight, x), std::numeric_limits<float>::infinity()) << value;
  }
}

TEST_F(WatchedRows, tell_nothing_where_products_do_not_round_them) {
  const auto widened = make(w8a8), bytes = make(int8), numbers = make(plain);
  ASSERT_TRUE(ops_->weights().widen(*widened).ok());
  const HostTensor x = random_.normal({4, 330});
  for (const auto* weight : {&widened, &bytes, &numbers}) EXPECT_EQ(peak_of(**weight, x), 0.0F);
}

}  // namespace
}  // namespace troupe
