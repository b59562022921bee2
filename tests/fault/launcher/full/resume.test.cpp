#include <gtest/gtest.h>

#include "tests/fault/launcher/support/resumption.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

TEST(Resumption, after_twenty_kills_at_random_moments_gives_the_bytes_of_an_undisturbed_run) {
  kill_and_resume(20, 1200 / time_scale, 1500 * time_scale);
}

}  // namespace
}  // namespace troupe::test
