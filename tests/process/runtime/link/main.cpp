#include <gtest/gtest.h>

#include "tests/support/hosts/test_hosts.hpp"

int main(int argc, char** argv) {
  troupe::test::run_with_hosts(1, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
