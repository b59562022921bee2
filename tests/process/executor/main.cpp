#include <gtest/gtest.h>

#include "actors/executor/executor.hpp"
#include "runtime/actor/cluster.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Executor>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
