#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/call/call_observer.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/metrics/metrics_sum.hpp"

namespace troupe {

/// The sum of the metrics of a cluster's processes. What a process has counted stays in it after
/// its end, so that no counter ever falls: all that it said before it ended in order, else what it
/// said when it was asked last. Of ended processes only the sum is kept. Not synchronised.
class ClusterMetrics {
 public:
  /// Processes are asked. What one that ends meanwhile has answered does not count any more.
  void begin_round() { is_round_ = true; }
  void end_round() {
    is_round_ = false;
    just_ended_.clear();
  }
  /// A process has told its metrics.
  void take(std::size_t node, ProcessId process, ProcessMetrics metrics);
  /// A process has told them for the last time.
  void take_last(std::size_t node, ProcessId process, const ProcessMetrics& metrics);
  /// Of the node's processes only these are there: the others have ended.
  void keep_only(std::size_t node, const std::set<ProcessId>& processes);

  /// The sum, with that of the driver's own process.
  MetricsSum sum(const ProcessMetrics& own);

 private:
  using Key = std::pair<std::size_t, ProcessId>;
  /// The metrics, with names for methods that have numbers.
  MetricsSnapshot named(MetricsSnapshot metrics) const;

  std::map<Key, MetricsSnapshot> last_;  ///< of those that live
  MetricsSum ended_;
  bool is_round_ = false;
  std::set<Key> just_ended_;
  std::map<std::string, std::vector<std::string>> methods_;  ///< by actor_type
};

}  // namespace troupe
