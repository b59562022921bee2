#include <string_view>

#include <gtest/gtest.h>

#include "runtime/actor/cluster.hpp"
#include "tests/process/runtime/observe/watched_program.hpp"
#include "tests/support/hosts/test_hosts.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  troupe::test::add_watched_actors(types);
  troupe::init(argc, argv, types);
  if (argc > 1 && std::string_view(argv[1]) == "--watched") {
    return troupe::test::run_watched_program({argv + 2, argv + argc});
  }
  troupe::test::run_with_hosts(2, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
