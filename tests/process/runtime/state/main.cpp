#include <csignal>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

/// A program on a Cluster: starts two actors and waits for a signal. PROGRAM --cluster NAME LOGS
int run_cluster(const std::string& name, const std::string& logs, bool handles_sigterm) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  if (handles_sigterm) ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  ClusterOptions options;
  options.name = name;
  options.log_folder = logs;
  options.nodes = {{"node0", 4, {0, 1}}};
  auto cluster = start_cluster(std::move(options));
  const auto group = must(cluster->create_placement_group({"pair", {{.devices = 1}}}));
  const auto first =
      must(cluster->spawn<Counter>({.name = "first", .max_restarts = 100}, 1).get(limit));
  const auto second =
      must(cluster
               ->spawn<Counter>(
                   {.name = "second", .resources = {.devices = 1}, .bundle = group.bundle(0)}, 2)
               .get(limit));
  std::puts("ready");
  std::fflush(stdout);
  int signal = 0;
  if (handles_sigterm) {
    ::sigwait(&ends, &signal);
    std::puts("ends in order");
  } else {
    ::pause();
  }
  return 0;
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Counter>();
  troupe::init(argc, argv, types);
  if (argc > 4 && std::string_view(argv[1]) == "--cluster") {
    return troupe::test::run_cluster(argv[2], argv[3], argv[4] == std::string_view("handles"));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
