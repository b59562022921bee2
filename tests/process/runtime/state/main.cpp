#include <csignal>
#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/process/runtime/state/state_fixture.hpp"

namespace troupe::test {
namespace {

/// A program whose cluster waits for nodes that do not come.
int await_nodes(const std::string& name) {
  ClusterOptions options;
  options.name = name;
  options.address = "127.0.0.1";
  options.join.emplace();
  options.nodes.resize(many);
  for (int i = 0; i < many; ++i) options.nodes[i].cpus = i;
  options.start_timeout = limit;
  bool has_said = false;
  options.while_waiting = [&](const ClusterWait&) {
    if (!std::exchange(has_said, true)) std::puts("ready");
    std::fflush(stdout);
    return true;
  };
  return Cluster::start(std::move(options)).ok() ? 1 : 0;
}

using Floats = std::vector<float>;

/// Reads an object, and keeps it.
class Keeper {
 public:
  explicit Keeper(ActorContext& context) : context_(context) {}
  Result<void> keep(const ObjectRef<Floats>& ref) {
    TROUPE_TRY(auto view, context_.get(ref, limit));
    view_ = std::move(view);
    return {};
  }
  static constexpr std::string_view actor_type = "Keeper";
  using Methods = troupe::Methods<&Keeper::keep>;

 private:
  ActorContext& context_;
  std::optional<ObjectView<Floats>> view_;
};

/// The objects of a program: one of each kind, or many small ones.
struct Objects {
  std::vector<ObjectRef<std::string>> texts;
  std::optional<ObjectRef<Floats>> large, pending;

  void make(Cluster& cluster, std::string_view manner) {
    for (int i = 0; manner == "many objects" && i < many; ++i) {
      texts.push_back(must(cluster.put(std::string("words"))));
    }
    if (manner != "objects") return;
    texts.push_back(must(cluster.put(std::string("words"))));
    large = must(cluster.put(Floats(1 << 20, 1.0F)));
    pending = ObjectRef<Floats>(cluster.objects().make_pending({}));
    const auto keeper = must(cluster.spawn<Keeper>({.name = "keeper"}).get(limit));
    must(keeper.call<&Keeper::keep>(*large).get(limit));
  }
};

/// A program on a Cluster: starts two actors and waits for a signal.
int run_cluster(const std::string& name, const std::string& logs, std::string_view manner) {
  const bool handles_sigterm = manner != "dies";
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  if (handles_sigterm) ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  ClusterOptions options;
  options.name = name;
  options.log_folder = logs;
  options.nodes = {{"node0", 4, {0, 1}, 0, {{"slots", many}}}};
  auto cluster = start_cluster(std::move(options));
  const auto group = must(cluster->create_placement_group({"pair", {{.devices = 1}}}));
  const auto first =
      must(cluster->spawn<Counter>({.name = "first", .max_restarts = 100}, 1).get(limit));
  const auto second =
      must(cluster
               ->spawn<Counter>(
                   {.name = "second", .resources = {.devices = 1}, .bundle = group.bundle(0)}, 2)
               .get(limit));
  ActorHandle<Counter> green;
  if (manner == "namespaces") {
    green = must(cluster->spawn<Counter>({.name = "first", .name_space = "green"}, 3).get(limit));
  }
  for (int i = 0; manner == "groups" && i < many; ++i) {
    must(cluster->create_placement_group(
        {fmt::format("group-{}", i), {{.custom = {{"slots", 1}}}}}));
  }
  Objects objects;
  objects.make(*cluster, manner);
  cluster->tell_state("1 of 2 parts serve");
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
  types.add<troupe::test::Keeper>();
  troupe::init(argc, argv, types);
  // --cluster NAME LOGS MANNER: handles or dies (of SIGTERM), has many groups, objects or many
  // objects, awaits many nodes
  if (argc > 4 && std::string_view(argv[1]) == "--cluster") {
    const std::string_view manner = argv[4];
    if (manner == "awaits") return troupe::test::await_nodes(argv[2]);
    return troupe::test::run_cluster(argv[2], argv[3], manner);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
