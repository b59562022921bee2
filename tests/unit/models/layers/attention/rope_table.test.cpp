#include "models/layers/attention/rope_table.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(RopeTable, holds_cosines_then_sines_of_each_position) {
  const HostTensor table = rope_table({.theta = 100.0}, 5, 8);
  ASSERT_EQ(table->shape(), Shape({5, 8}));
  for (std::int64_t position = 0; position < 5; ++position) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(position) * std::pow(100.0, -2.0 * i / 8.0);
      const float* row = table->as<float>() + position * 8;
      EXPECT_NEAR(row[i], std::cos(angle), 1e-6) << "position " << position << ", angle " << i;
      EXPECT_NEAR(row[4 + i], std::sin(angle), 1e-6) << "position " << position << ", angle " << i;
    }
  }
}

TEST(RopeTable, does_not_depend_on_how_many_positions_it_has) {
  const HostTensor some = rope_table({.theta = 1e6}, 10, 64);
  const HostTensor more = rope_table({.theta = 1e6}, 3000, 64);
  for (std::int64_t i = 0; i < some->elements(); ++i) {
    ASSERT_EQ(some->as<float>()[i], more->as<float>()[i]) << "element " << i;
  }
}

TEST(RopeTable, has_the_same_bits_whatever_number_of_threads_computes_it) {
  const RopeConfig ropes[] = {{.theta = 1e6},
                              {.theta = 1e4, .scaling = DynamicRopeScaling{2.0, 1000.0}}};
  for (const RopeConfig& rope : ropes) {
    const HostTensor one = rope_table(rope, 4001, 64, 48, 1);
    for (const int threads : {2, 7, 5000}) {
      const HostTensor found = rope_table(rope, 4001, 64, 48, threads);
      ASSERT_EQ(std::memcmp(found->as<float>(), one->as<float>(), one->bytes()), 0)
          << threads << " threads";
    }
  }
}

TEST(RopeTable, leaves_the_elements_as_they_are_that_no_rope_rotates) {
  const HostTensor table = rope_table(
      {.scaling = YarnRopeScaling{.original_positions = 64.0, .table_factor = 1.5}}, 9, 16, 4);
  for (std::int64_t i = 2; i < 8; ++i) {
    const float* row = table->as<float>() + 8 * 16;
    EXPECT_EQ(row[i], 1.0F) << "angle " << i;
    EXPECT_EQ(row[8 + i], 0.0F) << "angle " << i;
  }
}

/// The angle by which dimension `i` of `dim` turns from one position to the next.
double frequency(const RopeConfig& rope, std::int64_t dim, std::int64_t i) {
  const HostTensor table = rope_table(rope, 2, dim);
  const float* row = table->as<float>() + dim;
  return std::atan2(row[dim / 2 + i], row[i]);
}

struct Expected {
  std::int64_t dimension;
  double frequency;
};

void expect_frequencies(const RopeConfig& rope, std::int64_t dim,
                        const std::vector<Expected>& expected) {
  for (const Expected& one : expected) {
    const double found = frequency(rope, dim, one.dimension);
    EXPECT_NEAR(found, one.frequency, 2e-6 * one.frequency) << "dimension " << one.dimension;
  }
}

TEST(RopeTable, divides_positions_by_a_linear_factor) {
  const RopeConfig rope{.theta = 100.0, .scaling = LinearRopeScaling{4.0}};
  expect_frequencies(rope, 8, {{0, 0.25}, {2, 0.025}, {3, 0.25 * std::pow(100.0, -0.75)}});
}

// The numbers in these tests are from the papers' formulas, computed separately in double.

TEST(RopeTable, stretches_the_long_wavelengths_of_llama3) {
  const RopeConfig rope{.theta = 5e5, .scaling = Llama3RopeScaling{8.0, 1.0, 4.0, 64.0}};
  expect_frequencies(rope, 32,
                     {{0, 1.0},
                      {1, 0.44036660267178046},
                      {2, 0.0794030091792082},
                      {3, 0.010674637535720701},
                      {15, 5.677088100759837e-07}});
}

TEST(RopeTable, stretches_with_yarn_between_whole_dimensions) {
  // DeepSeek-V3's, whose table is not scaled; then Qwen2.5's for long contexts.
  const RopeConfig deepseek{
      .theta = 1e4, .scaling = YarnRopeScaling{.factor = 40.0, .original_positions = 4096.0}};
  expect_frequencies(deepseek, 64,
                     {{0, 1.0},
                      {10, 0.05623413251903491},
                      {11, 0.03900692656714386},
                      {16, 0.0055},
                      {22, 0.0001778279410038922},
                      {23, 3.33380358040831e-05},
                      {31, 3.3338035804083097e-06}});
  const RopeConfig qwen{.theta = 1e6,
                        .scaling = YarnRopeScaling{.factor = 4.0, .original_positions = 32768.0}};
  expect_frequencies(qwen, 128,
                     {{23, 0.006978305848598663},
                      {24, 0.005375321490790102},
                      {30, 0.001064360981247002},
                      {40, 4.445698525097307e-05},
                      {63, 3.102344401879299e-07}});
}

TEST(RopeTable, stretches_with_yarn_between_parts_of_dimensions_where_told) {
  const RopeConfig rope{
      .theta = 1.5e5,
      .scaling =
          YarnRopeScaling{.factor = 32.0, .original_positions = 4096.0, .whole_dimensions = false}};
  expect_frequencies(rope, 64,
                     {{8, 0.050813274815461475},
                      {9, 0.03170569618466377},
                      {14, 0.0020937923789696887},
                      {17, 0.0001293187012450632},
                      {18, 3.8308812373753384e-05}});
}

TEST(RopeTable, scales_cosines_and_sines_by_yarns_factor) {
  const RopeConfig rope{.scaling = YarnRopeScaling{.factor = 4.0,
                                                   .original_positions = 64.0,
                                                   .table_factor = 1.138629436111989}};
  const HostTensor table = rope_table(rope, 3, 8);
  EXPECT_FLOAT_EQ(table->as<float>()[0], 1.138629436111989F);
  const float* row = table->as<float>() + 2 * 8;
  EXPECT_NEAR(row[0], 1.138629436111989 * std::cos(2.0), 1e-6);
  EXPECT_NEAR(row[4], 1.138629436111989 * std::sin(2.0), 1e-6);
}

TEST(RopeTable, changes_nothing_within_the_original_length_with_dynamic_scaling) {
  const RopeConfig dynamic{.theta = 1e4, .scaling = DynamicRopeScaling{2.0, 16.0}};
  const HostTensor plain = rope_table({.theta = 1e4}, 16, 8);
  const HostTensor found = rope_table(dynamic, 24, 8);
  for (std::int64_t i = 0; i < plain->elements(); ++i) {
    ASSERT_EQ(found->as<float>()[i], plain->as<float>()[i]) << "element " << i;
  }
}

TEST(RopeTable, takes_a_larger_base_at_each_position_beyond_it) {
  const RopeConfig dynamic{.theta = 1e4, .scaling = DynamicRopeScaling{2.0, 16.0}};
  const HostTensor table = rope_table(dynamic, 24, 8);
  // Position 23 as the last of 24 tokens: a base of 1e4 * (2 * 24 / 16 - 1)^(8 / 6).
  const double angles[] = {23.0, 1.8255112097634294, 0.1448909207379104, 0.0115};
  const float* row = table->as<float>() + std::int64_t{23} * 8;
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(row[i], std::cos(angles[i]), 1e-6) << "angle " << i;
    EXPECT_NEAR(row[4 + i], std::sin(angles[i]), 1e-6) << "angle " << i;
  }
}

}  // namespace
}  // namespace troupe
