#include "actors/worker/startup/own_device.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::HasSubstr;

TEST(OwnDevice, is_the_one_that_the_placement_gave) {
  const auto found = own_device(std::array{3}, 4, "worker-0");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, 3);
}

TEST(OwnDevice, is_refused_where_the_machine_has_fewer) {
  const auto found = own_device(std::array{4}, 4, "worker-4");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_THAT(found.error().message, HasSubstr("worker-4: it was placed on GPU 4"));
}

TEST(OwnDevice, is_refused_to_a_worker_that_was_placed_without_one) {
  EXPECT_EQ(own_device({}, 4, "worker-0").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace troupe
