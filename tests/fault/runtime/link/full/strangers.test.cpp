#include <gtest/gtest.h>

#include "tests/fault/runtime/link/support/besieged_listener.hpp"

namespace troupe::test {

TEST(LinkListenerFull, serves_its_links_while_two_thousand_strangers_press_for_long) {
  besiege_a_listener(std::chrono::seconds(30));
}

}  // namespace troupe::test
