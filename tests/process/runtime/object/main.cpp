#include <gtest/gtest.h>

#include "tests/process/runtime/object/object_actors.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Reader>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
