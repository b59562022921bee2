#include "runtime/node/visible_devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {

using ::testing::HasSubstr;

TEST(VisibleDevices, are_the_ids_where_the_agent_sees_all) {
  EXPECT_EQ(*visible_devices(std::vector{4, 7}, nullptr), "4,7");
}

TEST(VisibleDevices, count_in_those_that_the_agent_sees) {
  EXPECT_EQ(*visible_devices(std::vector{0, 2}, "3,5,GPU-8932f937,6"), "3,GPU-8932f937");
}

TEST(VisibleDevices, refuse_an_id_that_the_agent_does_not_see) {
  const auto refused = visible_devices(std::vector{0, 2}, "3,5");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("device 2"));
  EXPECT_FALSE(visible_devices(std::vector{0}, "").ok());
}

}  // namespace troupe
