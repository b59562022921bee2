#include "models/layers/rope_table.hpp"

#include <cmath>

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

}  // namespace
}  // namespace troupe
