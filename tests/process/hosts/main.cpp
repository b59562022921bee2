#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "runtime/node/agent.hpp"
#include "tests/process/hosts/host_actors.hpp"
#include "tests/process/hosts/support/observed_program.hpp"
#include "tests/support/hosts/test_hosts.hpp"

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Inhabitant>();
  troupe::init(argc, argv, types);
  // As an agent of another build than the launcher: PROGRAM --join HOST:PORT --token-file FILE ...
  if (argc > 4 && std::string_view(argv[1]) == "--join") {
    const std::string at = argv[2];
    const auto port = static_cast<std::uint16_t>(std::stoi(at.substr(at.find(':') + 1)));
    return troupe::run_joining_agent({at.substr(0, at.find(':')), port, argv[4]});
  }
  if (argc > 1 && std::string_view(argv[1]) == "--observed") {
    return troupe::test::run_observed_program({argv + 2, argv + argc});
  }
  troupe::test::run_with_hosts(5, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
