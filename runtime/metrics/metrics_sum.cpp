#include "runtime/metrics/metrics_sum.hpp"

#include "runtime/metrics/exposition.hpp"

namespace troupe {

void MetricsSum::add(const MetricsSnapshot& snapshot, bool all_kinds) {
  for (const MetricFamily& from : snapshot) {
    if (!all_kinds && from.kind == MetricKind::gauge) continue;
    Family& family = families_.try_emplace(from.name, Family{from.help, from.kind, from.bounds, {}})
                         .first->second;
    if (family.kind != from.kind || family.bounds != from.bounds) continue;
    const std::size_t count = from.kind == MetricKind::histogram ? from.bounds.size() + 2 : 1;
    for (const MetricSeries& series : from.series) {
      if (series.values.size() != count) continue;  // of a process that breaks the format
      const auto found = family.series.find(series.labels);
      if (found == family.series.end()) {
        if (series_ == max_series) continue;
        ++series_;
        family.series.emplace(series.labels, series.values);
        continue;
      }
      for (std::size_t i = 0; i < count; ++i) found->second[i] += series.values[i];
    }
  }
}

MetricsSnapshot MetricsSum::snapshot() const {
  MetricsSnapshot snapshot;
  for (const auto& [name, family] : families_) {
    MetricFamily& out =
        snapshot.emplace_back(MetricFamily{name, family.help, family.kind, family.bounds, {}});
    for (const auto& [labels, values] : family.series) out.series.push_back({labels, values});
  }
  return snapshot;
}

std::string MetricsSum::text() const {
  Exposition out({});
  for (const MetricFamily& family : snapshot()) out.family(family);
  return std::move(out).text();
}

}  // namespace troupe
