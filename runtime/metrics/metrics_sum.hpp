#pragma once

#include <map>
#include <string>

#include "runtime/metrics/metrics_snapshot.hpp"

namespace troupe {

/// The sum of the metrics of several processes: series of the same name and labels are added, also
/// gauges. Not synchronised.
class MetricsSum {
 public:
  /// What a process leaves behind are its counts (`all_kinds` false): a gauge says what there is.
  /// A metric whose kind or bounds are not those of the same name before is left out, and so are
  /// series beyond `max_series`.
  void add(const MetricsSnapshot& snapshot, bool all_kinds = true);

  /// In Prometheus' text format, version 0.0.4, by name and labels.
  std::string text() const;
  MetricsSnapshot snapshot() const;

  static constexpr std::size_t max_series = 100'000;

 private:
  struct Family {
    std::string help;
    MetricKind kind = MetricKind::counter;
    std::vector<double> bounds;
    std::map<MetricLabels, std::vector<double>> series;
  };
  std::map<std::string, Family> families_;
  std::size_t series_ = 0;
};

}  // namespace troupe
