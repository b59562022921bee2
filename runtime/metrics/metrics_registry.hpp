#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "runtime/metrics/metric_values.hpp"
#include "runtime/metrics/metrics_snapshot.hpp"

namespace troupe {

/// The metrics of one process: its actors make theirs here (ActorContext::metrics, Cluster::
/// metrics), and `troupe metrics` and Cluster::metrics_text give the sum over all processes of the
/// cluster, in Prometheus' text format. Callable from any thread.
///
///   const Counter sold = context.metrics().counter("shop_sold_total", "Items.", {{"kind",
///   "hat"}}); sold.add(3);
///
/// Making the same series again gives the same one, also in another actor of the process: keep the
/// object where calls are frequent, as making takes a lock. The help of the first one counts.
///
/// What cannot be made counts nothing, and the log says why, once for each name: a name or a label
/// that Prometheus does not allow, a name that has another kind or other bounds, more than
/// `max_series`. Labels are for few values: one for each user or request would never end.
class MetricsRegistry {
 public:
  static constexpr std::size_t max_series = 10'000;

  MetricsRegistry() = default;
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  /// Names match [a-zA-Z_:][a-zA-Z0-9_:]*, those of labels have no colon and do not begin with two
  /// underscores. By custom a counter's ends with _total.
  Counter counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge gauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  /// `bounds`: the upper bounds of the buckets, inclusive and ascending; at most 100.
  Histogram histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                      MetricLabels labels = {});
  /// With the bounds that Prometheus' clients have for seconds: 0.005 to 10.
  Histogram histogram(std::string_view name, std::string_view help, MetricLabels labels = {});

  /// The values now, by name and then by labels.
  MetricsSnapshot snapshot() const;

 private:
  struct Series {
    std::shared_ptr<std::atomic<double>> value;  ///< of a counter or a gauge
    std::shared_ptr<HistogramBuckets> buckets;
  };
  struct Family {
    std::string help;
    MetricKind kind = MetricKind::counter;
    std::vector<double> bounds;
    std::map<MetricLabels, Series> series;
  };
  /// The series, which is made if it is not there; empty if it cannot be.
  Series make(std::string_view name, std::string_view help, MetricKind kind,
              std::span<const double> bounds, MetricLabels labels);
  /// Logs why, unless this name was refused before; mutex_ is held.
  Series refuse(std::string_view name, std::string_view why);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  std::size_t series_ = 0;
  std::set<std::string, std::less<>> refused_;  ///< names, at most max_refused
};

}  // namespace troupe
