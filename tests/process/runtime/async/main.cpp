#include <gtest/gtest.h>

#include "tests/process/runtime/async/async_actors.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Worker>();
  types.add<troupe::test::Meeting>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
