#include "runtime/link/local_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::test {
namespace {

TEST(LocalAddress, of_an_interface_leads_back_to_it) {
  const auto address = interface_address("lo");
  ASSERT_TRUE(address.ok()) << address.error().message;
  const auto interface = interface_of(*address);
  ASSERT_TRUE(interface.ok()) << interface.error().message;
  EXPECT_EQ(*interface, "lo");
}

TEST(LocalAddress, of_another_machine_has_no_interface_here) {
  const auto interface = interface_of("192.0.2.1");  // kept for documentation: RFC 5737
  ASSERT_FALSE(interface.ok());
  EXPECT_THAT(interface.error().message, testing::HasSubstr("192.0.2.1"));
}

}  // namespace
}  // namespace troupe::test
