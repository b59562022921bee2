#include "tests/fault/launcher/support/freeze.hpp"

#include <gtest/gtest.h>

namespace troupe::test {

using namespace std::chrono_literals;

TEST(FreezeFull, a_job_that_is_stopped_as_a_whole_for_a_minute_goes_on) { freeze_and_check(60s); }

TEST(FreezeFull, a_job_goes_on_a_minute_after_ctrl_z) { press_ctrl_z_and_check(60s); }

}  // namespace troupe::test
