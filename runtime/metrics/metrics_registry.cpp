#include "runtime/metrics/metrics_registry.hpp"

#include <array>

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_bounds = 100;
constexpr std::size_t max_refused = 100;
constexpr std::array default_bounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(std::string_view name, bool may_have_colons) {
  const auto fits = [&](char c) { return is_letter(c) || (may_have_colons && c == ':'); };
  return !name.empty() && fits(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return fits(c) || is_digit(c); });
}

/// Why there can be no such labels, which are sorted; empty if there can be.
std::string_view wrong_with(const MetricLabels& labels, MetricKind kind) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& name = labels[i].first;
    if (!is_name(name, false) || name.starts_with("__")) return "a label's name is not allowed";
    if (kind == MetricKind::histogram && name == "le") return "a histogram has a label 'le' itself";
    if (i > 0 && labels[i - 1].first == name) return "a label is given twice";
  }
  return "";
}

bool is_ascending(std::span<const double> bounds) {
  return std::ranges::adjacent_find(bounds, [](double a, double b) { return !(a < b); }) ==
         bounds.end();
}

}  // namespace

MetricsRegistry::Series MetricsRegistry::refuse(std::string_view name, std::string_view why) {
  if (refused_.size() < max_refused && refused_.emplace(name).second) {
    log::warning("the metric '{}' is not counted: {}", name, why);
  }
  return {};
}

MetricsRegistry::Series MetricsRegistry::make(std::string_view name, std::string_view help,
                                              MetricKind kind, std::span<const double> bounds,
                                              MetricLabels labels) {
  std::ranges::sort(labels);
  const std::lock_guard lock(mutex_);
  if (!is_name(name, true)) return refuse(name, "Prometheus does not allow this name");
  if (const auto wrong = wrong_with(labels, kind); !wrong.empty()) return refuse(name, wrong);
  if (bounds.size() > max_bounds || !is_ascending(bounds)) {
    return refuse(name, "its bounds do not ascend, or are more than 100");
  }
  auto family = families_.find(name);
  if (family != families_.end()) {
    const Family& known = family->second;
    if (known.kind != kind || !std::ranges::equal(known.bounds, bounds)) {
      return refuse(name, "this name has another kind, or other bounds");
    }
    const auto series = known.series.find(labels);
    if (series != known.series.end()) return series->second;
  }
  if (series_ == max_series) return refuse(name, "this process has 10,000 series already");
  ++series_;
  if (family == families_.end()) {
    family = families_
                 .emplace(std::string(name),
                          Family{std::string(help), kind, {bounds.begin(), bounds.end()}, {}})
                 .first;
  }
  Series made;
  if (kind == MetricKind::histogram) {
    made.buckets = std::make_shared<HistogramBuckets>(bounds);
  } else {
    made.value = std::make_shared<std::atomic<double>>(0);
  }
  family->second.series.emplace(std::move(labels), made);
  return made;
}

Counter MetricsRegistry::counter(std::string_view name, std::string_view help,
                                 MetricLabels labels) {
  return Counter(make(name, help, MetricKind::counter, {}, std::move(labels)).value);
}

Gauge MetricsRegistry::gauge(std::string_view name, std::string_view help, MetricLabels labels) {
  return Gauge(make(name, help, MetricKind::gauge, {}, std::move(labels)).value);
}

Histogram MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                     std::span<const double> bounds, MetricLabels labels) {
  return Histogram(make(name, help, MetricKind::histogram, bounds, std::move(labels)).buckets);
}

Histogram MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                     MetricLabels labels) {
  return histogram(name, help, default_bounds, std::move(labels));
}

MetricsSnapshot MetricsRegistry::snapshot() const {
  const std::lock_guard lock(mutex_);
  MetricsSnapshot snapshot;
  for (const auto& [name, family] : families_) {
    MetricFamily& out =
        snapshot.emplace_back(MetricFamily{name, family.help, family.kind, family.bounds, {}});
    for (const auto& [labels, series] : family.series) {
      MetricSeries& values = out.series.emplace_back(MetricSeries{labels, {}});
      if (!series.buckets) {
        values.values.push_back(series.value->load(std::memory_order_relaxed));
        continue;
      }
      for (std::size_t i = 0; i <= family.bounds.size(); ++i) {
        values.values.push_back(static_cast<double>(series.buckets->in_bucket(i)));
      }
      values.values.push_back(series.buckets->sum());
    }
  }
  return snapshot;
}

}  // namespace troupe
