#include <gtest/gtest.h>

#include "tests/process/runtime/object/object_actors.hpp"
#include "tests/support/hosts/test_hosts.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Reader>();
  troupe::init(argc, argv, types);
  troupe::test::run_with_hosts(3, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
