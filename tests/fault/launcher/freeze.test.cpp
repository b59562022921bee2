#include "tests/fault/launcher/support/freeze.hpp"

#include <gtest/gtest.h>

namespace troupe::test {

using namespace std::chrono_literals;

TEST(Freeze, a_job_that_is_stopped_as_a_whole_for_some_seconds_goes_on) { freeze_and_check(4s); }

TEST(Freeze, a_job_goes_on_after_ctrl_z_and_fg) { press_ctrl_z_and_check(4s); }

}  // namespace troupe::test
