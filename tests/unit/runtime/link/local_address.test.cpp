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

TEST(LocalAddress, of_a_name_that_stands_for_this_machine_alone_is_refused_with_the_reason) {
  const auto own = own_address("127.0.1.1");  // as Debian's /etc/hosts has the machine's own name
  ASSERT_FALSE(own.ok());
  EXPECT_THAT(own.error().message, testing::HasSubstr("other hosts do not reach"));
  EXPECT_TRUE(is_loopback("127.0.1.1") && is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

TEST(LocalAddress, of_a_host_are_all_that_it_has) {
  const auto addresses = addresses_of("localhost");
  ASSERT_TRUE(addresses.ok()) << addresses.error().message;
  EXPECT_THAT(*addresses, testing::Each(testing::ResultOf(is_loopback, true)));
  EXPECT_FALSE(addresses_of("nohost.invalid").ok());
}

TEST(LocalAddress, of_another_machine_has_no_interface_here) {
  const auto interface = interface_of("192.0.2.1");  // kept for documentation: RFC 5737
  ASSERT_FALSE(interface.ok());
  EXPECT_THAT(interface.error().message, testing::HasSubstr("192.0.2.1"));
}

}  // namespace
}  // namespace troupe::test
