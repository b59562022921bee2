#include <gtest/gtest.h>

#include "tests/process/runtime/actor/cpu_reader.hpp"
#include "tests/process/runtime/actor/crowd.hpp"
#include "tests/process/runtime/actor/parent.hpp"
#include "tests/process/runtime/actor/secret_seeker.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Counter>();
  types.add<troupe::test::Recorder>();
  types.add<troupe::test::Insider>();
  types.add<troupe::test::Fragile>();
  types.add<troupe::test::Leaver>();
  types.add<troupe::test::SecretSeeker>();
  types.add<troupe::test::Parent>();
  types.add<troupe::test::Member>();
  types.add<troupe::test::CpuReader>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
