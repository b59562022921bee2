#include <gtest/gtest.h>

#include "tests/fault/launcher/support/resumption.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

TEST(Resumption, after_three_kills_gives_the_bytes_of_an_undisturbed_run) {
  kill_and_resume(3, 200 / time_scale, 1200 * time_scale);
}

}  // namespace
}  // namespace troupe::test
