#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor/cluster.hpp"
#include "runtime/base/deadline.hpp"
#include "tests/support/comes_true.hpp"

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

using Floats = std::vector<float>;
/// More floats than an object that travels inside answers has.
inline constexpr int many = 100000;

/// Writes its pid as a line of the file, and returns so many floats.
Floats make_floats(const std::string& file, int count, float value);
/// The same, of ones, after so many milliseconds.
Floats make_slowly(const std::string& file, int ms, int count);
/// The same, of twice the floats of an object.
Result<Floats> doubled(ActorContext& context, const std::string& file,
                       const ObjectRef<Floats>& floats);
Result<double> sum_of(ActorContext& context, const ObjectRef<Floats>& floats);
/// Puts objects in its process.
Result<std::vector<ObjectRef<Floats>>> put_parts(ActorContext& context, int parts, int count);
/// Writes "begun" into the file, and "cancelled" once it is.
void run_until_cancelled(ActorContext& context, const std::string& file);
int sum_until_cancelled(ActorContext& context, const std::string& file);

/// The lines of a file, as the tasks that have run have written them; none if there is none.
inline std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// An actor that submits tasks.
class Submitter {
 public:
  explicit Submitter(ActorContext& context) : context_(context) {}
  Result<int> sum_of_tasks(int count);
  ObjectRef<Floats> submit_floats(const std::string& file, int count, float value) {
    return context_.submit_object<&make_floats>({}, file, count, value);
  }
  Result<double> sum(const ObjectRef<Floats>& floats) { return sum_of(context_, floats); }
  /// Cancels a task that runs, and returns the name of its error.
  Result<std::string> cancel_a_task(const std::string& file);
  void cancel(const ObjectRef<int>& result) { context_.cancel(result); }
  /// Until the deadline of its call; -1: it has none.
  std::int64_t remaining_ms();
  static constexpr std::string_view actor_type = "Submitter";
  using Methods =
      troupe::Methods<&Submitter::sum_of_tasks, &Submitter::submit_floats, &Submitter::sum,
                      &Submitter::cancel_a_task, &Submitter::cancel, &Submitter::remaining_ms>;

 private:
  ActorContext& context_;
};

/// What a call that the task makes is told.
Result<std::int64_t> remaining_ms_of_call(const ActorHandle<Submitter>& actor);

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
