#include <gtest/gtest.h>

#include "tests/fault/runtime/actor/victims.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Sleeper>();
  troupe::init(argc, argv, types);
  if (argc > 2 && std::string_view(argv[1]) == "--sub-driver")
    return troupe::test::run_sub_driver(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
