#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/node/resources.hpp"

namespace troupe {

/// How a task is run; see Cluster::submit.
struct TaskOptions {
  /// Reserved on a node while the task runs. Tasks with the same resources share worker processes,
  /// which the node keeps warm. A task that asks for devices gets a process that sees only these
  /// (as SpawnOptions::hides_other_devices) and ends about a second after the last task like it.
  Resources resources{.cpus = 1};
  /// How often the task is run again after the process that ran it, or that has its result
  /// (submit_object), has died; 0: it is never run twice; -1: always. Errors and exceptions of the
  /// function are answers and not retried. A process runs several tasks in turn, and the first
  /// death does not say which of them caused it: the others are run again, each alone, without
  /// being counted.
  std::int32_t max_retries = 3;
  std::string node{};  ///< empty: the node with room that has the fewest reservations
  /// From submit to the answer; then the future gets timed_out. A task that waits is dropped, one
  /// that runs goes on to its end, and sees ActorContext::is_cancelled. Calls that it makes have
  /// its deadline; tasks that it submits do not. 0: no limit.
  std::chrono::milliseconds timeout{0};
  std::string name{};  ///< for messages; empty: the function's

  template <class Archive>
  void fields(Archive& archive) {
    std::int64_t timeout_ms = timeout.count();
    archive(resources, max_retries, node, timeout_ms, name);
    timeout = std::chrono::milliseconds(timeout_ms);
  }
};

/// The tasks of a cluster as a whole.
struct TaskLimits {
  /// Tasks that are not answered, and whose callbacks have not begun; submitters in the driver wait
  /// beyond that, at most for ClusterOptions::calls.credit_timeout. Actors have the credits of
  /// their calls (CallHub) besides.
  std::size_t max_tasks = 131072;
  std::size_t max_bytes = std::size_t{512} << 20;  ///< of their arguments
  /// Worker processes without work end after this time, but one on each node.
  std::chrono::milliseconds idle_limit{60000};
};

}  // namespace troupe
