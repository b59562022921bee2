#include <gtest/gtest.h>

#include "tests/process/runtime/in_process/mode_actors.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Member>();
  types.add<troupe::test::Owner>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
