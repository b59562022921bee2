#include "runtime/actor/cluster_metrics.hpp"

#include <charconv>

namespace troupe {
namespace {

const std::string* label_of(const MetricSeries& series, std::string_view name) {
  for (const auto& [label, value] : series.labels) {
    if (label == name) return &value;
  }
  return nullptr;
}

}  // namespace

MetricsSnapshot ClusterMetrics::named(MetricsSnapshot metrics) const {
  for (MetricFamily& family : metrics) {
    if (family.name != "troupe_calls_made_total") continue;
    for (MetricSeries& series : family.series) {
      const std::string* type = label_of(series, "actor_type");
      const auto known = type == nullptr ? methods_.end() : methods_.find(*type);
      if (known == methods_.end()) continue;
      for (auto& [label, value] : series.labels) {
        if (label != "method" || !value.starts_with('#')) continue;
        std::size_t number = known->second.size();
        std::from_chars(value.data() + 1, value.data() + value.size(), number);
        if (number < known->second.size()) value = known->second[number];
      }
    }
  }
  return metrics;
}

void ClusterMetrics::take(std::size_t node, ProcessId process, ProcessMetrics metrics) {
  for (auto& [type, names] : metrics.methods) methods_.insert_or_assign(type, std::move(names));
  if (just_ended_.contains(Key(node, process))) return;
  last_.insert_or_assign(Key(node, process), std::move(metrics.metrics));
}

void ClusterMetrics::take_last(std::size_t node, ProcessId process, const ProcessMetrics& metrics) {
  for (const auto& [type, names] : metrics.methods) methods_.insert_or_assign(type, names);
  last_.erase(Key(node, process));
  if (is_round_) just_ended_.emplace(node, process);
  ended_.add(named(metrics.metrics), false);
}

void ClusterMetrics::keep_only(std::size_t node, const std::set<ProcessId>& processes) {
  for (auto it = last_.lower_bound(Key(node, 0)); it != last_.end() && it->first.first == node;) {
    if (processes.contains(it->first.second)) {
      ++it;
      continue;
    }
    ended_.add(named(std::move(it->second)), false);
    it = last_.erase(it);
  }
}

MetricsSum ClusterMetrics::sum(const ProcessMetrics& own) {
  for (const auto& [type, names] : own.methods) methods_.insert_or_assign(type, names);
  MetricsSum sum = ended_;
  for (const auto& [process, metrics] : last_) sum.add(named(metrics));
  sum.add(named(own.metrics));
  return sum;
}

}  // namespace troupe
