#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/metrics/metric_values.hpp"
#include "runtime/metrics/metrics_snapshot.hpp"

namespace troupe {

/// Writes metrics in Prometheus' text format, version 0.0.4
/// (https://prometheus.io/docs/instrumenting/exposition_formats): a # HELP and a # TYPE line, then
/// the samples of the name, together.
class Exposition {
 public:
  /// `labels` are added to every sample.
  explicit Exposition(MetricLabels labels) : labels_(std::move(labels)) {}

  void gauge(std::string_view name, std::string_view help, double value);
  /// Writes a sample for each value, numbered from 0 by the label `label`.
  void gauges(std::string_view name, std::string_view help, std::string_view label,
              std::span<const double> values);
  void counter(std::string_view name, std::string_view help, double value);
  /// Writes a sample for each value of the label `label`.
  void counters(std::string_view name, std::string_view help, std::string_view label,
                std::span<const std::pair<std::string, std::uint64_t>> values);
  void histogram(std::string_view name, std::string_view help, const HistogramBuckets& histogram);
  /// Writes a metric with all of its series; those of a histogram have values for all buckets.
  void family(const MetricFamily& family);

  std::string text() && { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view suffix, const MetricLabels& more,
              double value);
  /// `counts`: of each bucket, that above the last bound too.
  void buckets(std::string_view name, const MetricLabels& more, std::span<const double> bounds,
               std::span<const double> counts, double sum);

  MetricLabels labels_;
  std::string text_;
};

}  // namespace troupe
