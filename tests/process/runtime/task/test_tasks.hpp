#pragma once

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/actor/cluster.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
inline constexpr auto limit = 30s;

int add(int a, int b);
/// Takes about 20 us.
int slow_add(int a, int b);
int own_pid();
void sleep_for_ms(int ms);
int throw_out_of_range(const std::string& text);
Result<int> divide(int a, int b);
/// Fibonacci numbers by tasks that submit tasks and wait for them.
Result<int> fibonacci(ActorContext& context, int n);
/// Kills its process unless the file exists; makes it first.
std::string die_once(const std::string& file);
void die();
std::string visible_devices(ActorContext& context);
std::string echo(const std::string& text);

/// An actor that submits tasks.
class Submitter {
 public:
  explicit Submitter(ActorContext& context) : context_(context) {}
  Result<int> sum_of_tasks(int count);
  static constexpr std::string_view actor_type = "Submitter";
  using Methods = troupe::Methods<&Submitter::sum_of_tasks>;

 private:
  ActorContext& context_;
};

inline std::unique_ptr<Cluster> start_cluster(ClusterOptions options = {}) {
  if (options.nodes.empty()) options.nodes = {{"node0", 2, {}}};
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) throw std::runtime_error(cluster.error().message);
  return *std::move(cluster);
}

template <class T>  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from unless void
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// The processes that run tasks.
inline std::vector<int> worker_pids(Cluster& cluster) {
  std::vector<int> pids;
  for (const auto& actor : cluster.actors()) {
    if (actor.address.type == "troupe.TaskWorker") pids.push_back(actor.pid);
  }
  return pids;
}

}  // namespace troupe::test
