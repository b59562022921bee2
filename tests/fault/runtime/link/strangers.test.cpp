#include <gtest/gtest.h>

#include "tests/fault/runtime/link/support/besieged_listener.hpp"

namespace troupe::test {

TEST(LinkListener, serves_its_links_while_two_thousand_strangers_press) {
  besiege_a_listener(std::chrono::seconds(4));
}

}  // namespace troupe::test
