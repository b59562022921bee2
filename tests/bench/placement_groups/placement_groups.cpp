// Placement groups created and removed per second on 1, 16 and 256 nodes of this machine, while
// 1,000 placed actors live. A group is ready when the call that creates it returns. With an actor:
// it has a process of its own and has answered before the group is removed, and the next group
// needs the same device. `placement_groups [NODES...]`. Agents stand for other machines, so they
// leave the driver its core (nice 19).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>

#include "runtime/actor/cluster.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto limit = 300s;
constexpr int living_actors = 1000;
constexpr int devices_each = 8;
constexpr int spare_cpus = 1'000'000;  ///< of each node: more than the living actors reserve
constexpr auto measured_time = 2s;

class Resident {
 public:
  int echo(int value) { return value; }
  static constexpr std::string_view actor_type = "Resident";
  using Methods = troupe::Methods<&Resident::echo>;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<std::unique_ptr<Cluster>> start(std::size_t nodes) {
  ClusterOptions options;
  options.start_timeout = limit;
  options.log_level = log::Level::warning;
  for (std::size_t i = 0; i < nodes; ++i) {
    NodeSpec node{.name = fmt::format("node{}", i), .cpus = spare_cpus, .devices = {}};
    for (int device = 0; device < devices_each; ++device) node.devices.push_back(device);
    options.nodes.push_back(std::move(node));
  }
  return Cluster::start(std::move(options));
}

/// In one process on each of up to 16 nodes.
Result<void> spawn_residents(Cluster& cluster, std::size_t nodes) {
  std::vector<Future<ActorHandle<Resident>>> spawning;
  for (std::size_t i = 0; i < living_actors; ++i) {
    spawning.push_back(cluster.spawn<Resident>(
        {.resources = {.cpus = 1},
         .node = fmt::format("node{}", i % std::min<std::size_t>(nodes, 16)),
         .process = "residents"}));
  }
  for (auto& one : spawning) {
    TROUPE_TRY([[maybe_unused]] const auto actor, one.get(limit));
  }
  return {};
}

/// Returns the groups created and removed per second; `alive` of them are there at once.
Result<double> rate(Cluster& cluster, const PlacementGroupOptions& group, std::size_t alive) {
  const auto began = Clock::now();
  std::size_t groups = 0;
  for (; Clock::now() - began < measured_time; groups += alive) {
    std::vector<PlacementGroupId> ids;
    for (std::size_t i = 0; i < alive; ++i) {
      TROUPE_TRY(const auto created, cluster.create_placement_group(group));
      ids.push_back(created.id);
    }
    for (const auto id : ids) TROUPE_CHECK(cluster.remove_placement_group(id));
  }
  return static_cast<double>(groups) / seconds_since(began);
}

Result<double> rate_with_actors(Cluster& cluster) {
  const PlacementGroupOptions options{"", {{.devices = devices_each}}};
  const auto began = Clock::now();
  std::size_t groups = 0;
  for (; Clock::now() - began < measured_time; ++groups) {
    TROUPE_TRY(const auto group, cluster.create_placement_group(options));
    TROUPE_TRY(const auto actor,
               cluster.spawn<Resident>({.node = "node0", .bundle = group.bundle(0)}).get(limit));
    TROUPE_TRY([[maybe_unused]] const int answer, actor.call<&Resident::echo>(1).get(limit));
    Promise<void> end;
    const auto watch =
        cluster.watch(actor, [end](const ActorDown&) { end.complete(Result<void>()); });
    TROUPE_CHECK(cluster.remove_placement_group(group.id));
    TROUPE_CHECK(end.future().get(limit));
  }
  return static_cast<double>(groups) / seconds_since(began);
}

Result<void> bench(std::size_t nodes) {
  const auto began = Clock::now();
  TROUPE_TRY(const auto cluster, start(nodes));
  TROUPE_CHECK(spawn_residents(*cluster, nodes));
  std::printf("%zu nodes, %d actors, up after %.1f s\n", nodes, living_actors,
              seconds_since(began));
  for (const PlacementStrategy strategy :
       {PlacementStrategy::pack, PlacementStrategy::spread, PlacementStrategy::strict_pack,
        PlacementStrategy::strict_spread}) {
    for (const std::size_t bundles : {1, 8}) {
      if (strategy == PlacementStrategy::strict_spread && bundles > nodes) continue;
      const PlacementGroupOptions group{
          "", std::vector<Resources>(bundles, {.cpus = 1, .devices = 1}), strategy};
      TROUPE_TRY(const double one, rate(*cluster, group, 1));
      const PlacementGroupOptions of_cpus{"", std::vector<Resources>(bundles, {.cpus = 1}),
                                          strategy};
      TROUPE_TRY(const double many, rate(*cluster, of_cpus, 1000));
      std::printf("  %-13s of %zu bundle%s %8.0f groups/s one at a time, %8.0f with 1,000 alive\n",
                  name_of(strategy), bundles, bundles == 1 ? ": " : "s:", one, many);
    }
  }
  TROUPE_TRY(const double used, rate_with_actors(*cluster));
  std::printf("  with an actor: %.0f groups/s\n", used);
  std::fflush(stdout);
  return {};
}

Result<void> bench_all(const std::vector<std::size_t>& nodes) {
  for (const std::size_t count : nodes) TROUPE_CHECK(bench(count));
  return {};
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::Resident>();
  const bool is_driver = argc < 2 || !std::string_view(argv[1]).starts_with("--troupe-process");
  if (!is_driver) ::setpriority(PRIO_PROCESS, 0, 19);
  troupe::init(argc, argv, types);
  std::vector<std::size_t> nodes;
  for (int i = 1; i < argc; ++i) nodes.push_back(static_cast<std::size_t>(std::atoi(argv[i])));
  if (nodes.empty()) nodes = {1, 16, 256};
  const auto done = troupe::bench_all(nodes);
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.ok() ? 0 : 1;
}
