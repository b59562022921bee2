#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A label of a sample: its name, and its value, which may be any text.
using MetricLabel = std::pair<std::string_view, std::string>;
using MetricLabels = std::vector<MetricLabel>;

/// The counts of values in each bucket. One thread at a time.
class Histogram {
 public:
  /// `bounds`: upper bounds, inclusive and ascending; a bucket above the last one is added. They
  /// outlive the histogram.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void observe(double value);

  std::span<const double> bounds() const { return bounds_; }
  /// The count of values of at most bounds()[i]; all at i = bounds().size().
  std::uint64_t up_to(std::size_t i) const;
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

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
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram);

  std::string text() && { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view suffix, const MetricLabels& more,
              double value);

  MetricLabels labels_;
  std::string text_;
};

}  // namespace troupe
