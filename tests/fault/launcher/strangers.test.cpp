#include "tests/fault/launcher/support/strangers.hpp"

#include <gtest/gtest.h>

namespace troupe::test {

TEST(Strangers, cannot_harm_a_running_job_in_three_seconds) {
  expect_a_job_to_bear_strangers({.idle = 300, .duration = std::chrono::seconds(3)});
}

}  // namespace troupe::test
