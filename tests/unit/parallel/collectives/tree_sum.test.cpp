#include "parallel/collectives/tree_sum.hpp"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Rows = std::vector<std::vector<float>>;

// Magnitudes far apart, so that the order of additions shows in the bits.
Rows random_rows(unsigned seed, std::size_t rows, std::size_t count) {
  std::mt19937 random(seed);
  Rows result(rows, std::vector<float>(count));
  for (auto& row : result) {
    for (float& value : row) {
      const auto bits = random();
      value =
          std::ldexp(static_cast<float>(bits >> 8) - 8388608.0f, static_cast<int>(bits % 25u) - 35);
    }
  }
  return result;
}

std::vector<float> sum(const Rows& rows, std::size_t from, std::size_t terms) {
  std::vector<const float*> pointers;
  for (std::size_t t = from; t < from + terms; ++t) pointers.push_back(rows[t].data());
  std::vector<float> out(rows[0].size(), -1.0f);
  tree_sum(pointers, out.data(), out.size());
  return out;
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& found,
                      const std::string& what) {
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(found[i]))
        << what << ", element " << i << ": expected " << expected[i] << ", found " << found[i];
  }
}

TEST(TreeSum, adds_in_the_documented_order) {
  const Rows rows = random_rows(1, 8, 1'030);
  const auto term = [&](std::size_t t, std::size_t i) { return rows[t][i]; };
  for (std::size_t i = 0; i < 1'030; ++i) {
    const float first = (term(0, i) + term(1, i)) + (term(2, i) + term(3, i));
    const float second = (term(4, i) + term(5, i)) + (term(6, i) + term(7, i));
    ASSERT_EQ(sum(rows, 0, 3)[i], (term(0, i) + term(1, i)) + term(2, i)) << i;
    ASSERT_EQ(sum(rows, 0, 4)[i], first) << i;
    ASSERT_EQ(sum(rows, 0, 5)[i], first + term(4, i)) << i;
    ASSERT_EQ(sum(rows, 0, 6)[i], first + (term(4, i) + term(5, i))) << i;
    ASSERT_EQ(sum(rows, 0, 8)[i], first + second) << i;
    if (i > 40) i += 200;
  }
}

TEST(TreeSum, order_matters_for_the_numbers_these_tests_use) {
  const Rows rows = random_rows(1, 4, 1'000);
  const auto tree = sum(rows, 0, 4);
  int different = 0;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const float in_turn = ((rows[0][i] + rows[1][i]) + rows[2][i]) + rows[3][i];
    different += in_turn != tree[i] ? 1 : 0;
  }
  EXPECT_GT(different, 100);
}

TEST(TreeSum, ranks_that_sum_contiguous_segments_give_the_bits_of_one_rank) {
  for (const std::size_t count : {1u, 7u, 8u, 511u, 512u, 513u, 1'500u}) {
    for (const std::size_t segments : {1u, 2u, 4u, 8u, 16u, 32u}) {
      const Rows rows = random_rows(static_cast<unsigned>(segments + count), segments, count);
      const auto whole = sum(rows, 0, segments);
      for (std::size_t ranks = 1; ranks <= segments; ranks *= 2) {
        Rows partials;
        for (std::size_t r = 0; r < ranks; ++r) {
          partials.push_back(sum(rows, r * (segments / ranks), segments / ranks));
        }
        expect_same_bits(whole, sum(partials, 0, ranks),
                         std::to_string(segments) + " segments, " + std::to_string(ranks) +
                             " ranks, " + std::to_string(count) + " elements");
      }
    }
  }
}

TEST(TreeSum, bits_of_an_element_do_not_depend_on_its_place_or_on_the_length) {
  for (const std::size_t terms : {2u, 3u, 4u, 7u, 8u}) {
    const Rows rows = random_rows(9, terms, 1'200);
    const auto whole = sum(rows, 0, terms);
    for (const std::size_t begin : {1u, 3u, 8u, 500u, 1'199u}) {
      std::vector<const float*> pointers;
      for (const auto& row : rows) pointers.push_back(row.data() + begin);
      std::vector<float> tail(1'200 - begin);
      tree_sum(pointers, tail.data(), tail.size());
      expect_same_bits({whole.begin() + static_cast<long>(begin), whole.end()}, tail,
                       std::to_string(terms) + " terms from " + std::to_string(begin));
    }
  }
}

TEST(TreeSum, strided_form_is_the_same_sum) {
  const Rows rows = random_rows(4, 8, 100);
  std::vector<float> matrix;
  for (const auto& row : rows) {
    matrix.insert(matrix.end(), row.begin(), row.end());
    matrix.resize(matrix.size() + 12, 1e30f);  // rows are 112 apart
  }
  for (const std::size_t terms : {1u, 2u, 4u, 8u}) {
    std::vector<float> found(100);
    tree_sum(matrix.data(), static_cast<int>(terms), 112, found.data(), 100);
    expect_same_bits(sum(rows, 0, terms), found, std::to_string(terms) + " terms");
  }
}

TEST(TreeSum, nothing_is_written_for_no_elements) {
  const float term = 1.0f;
  const float* terms[] = {&term, &term, &term};
  float out = 7.0f;
  tree_sum(terms, &out, 0);
  EXPECT_EQ(out, 7.0f);
}

}  // namespace
}  // namespace troupe
