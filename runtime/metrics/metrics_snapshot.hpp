#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Names and values; the values may be any text.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

enum class MetricKind : std::uint8_t { counter, gauge, histogram };

/// The numbers of one metric with one set of labels.
struct MetricSeries {
  MetricLabels labels;
  /// One of a counter or a gauge; of a histogram the counts of each bucket, that above the last
  /// bound too, and then the sum of its values.
  std::vector<double> values;
  template <class Archive>
  void fields(Archive& archive) {
    archive(labels, values);
  }
};

/// One metric: all series of a name.
struct MetricFamily {
  std::string name, help;
  MetricKind kind = MetricKind::counter;
  std::vector<double> bounds;  ///< of a histogram's buckets but the last
  std::vector<MetricSeries> series;
  template <class Archive>
  void fields(Archive& archive) {
    archive(name, help, kind, bounds, series);
  }
};

/// The metrics of a process, or of several, at one moment.
using MetricsSnapshot = std::vector<MetricFamily>;

}  // namespace troupe
