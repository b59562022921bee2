#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace troupe::test {

// What is checked of the flows of Chrome trace events; TraceEvents checks the rest.

inline std::size_t count_of(const nlohmann::json& events, const std::string& phase) {
  std::size_t count = 0;
  for (const auto& event : events) count += event["ph"] == phase ? 1 : 0;
  return count;
}

/// The complete events of this name, in their order.
inline std::vector<nlohmann::json> spans_named(const nlohmann::json& events,
                                               const std::string& name) {
  std::vector<nlohmann::json> spans;
  for (const auto& event : events) {
    if (event["ph"] == "X" && event["name"] == name) spans.push_back(event);
  }
  return spans;
}

/// Flows without both ends, whose ends are in no span, or that end before they begin by more than
/// `slack_us`.
inline std::vector<std::string> broken_flows(const nlohmann::json& events, double slack_us = 0) {
  std::map<std::string, std::vector<nlohmann::json>> flows;
  std::vector<std::string> found;
  for (const auto& event : events) {
    if (event["ph"] == "s" || event["ph"] == "f") flows[event["id"]].push_back(event);
  }
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> spans;
  for (const auto& event : events) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    spans[{event["pid"], event["tid"]}].emplace_back(begin, begin + event["dur"].get<double>());
  }
  const auto is_in_span = [&](const nlohmann::json& end) {
    constexpr double rounding_us = 0.002;
    const double at = end["ts"];
    for (const auto& [first, last] : spans[{end["pid"], end["tid"]}]) {
      if (first <= at + rounding_us && at <= last + rounding_us) return true;
    }
    return false;
  };
  for (const auto& [id, ends] : flows) {
    const bool is_pair = ends.size() == 2 && ends[0]["ph"] != ends[1]["ph"];
    if (!is_pair) {
      found.push_back("without both ends: " + id);
      continue;
    }
    const auto& begin = ends[0]["ph"] == "s" ? ends[0] : ends[1];
    const auto& end = ends[0]["ph"] == "s" ? ends[1] : ends[0];
    if (end["ts"].get<double>() + slack_us < begin["ts"].get<double>()) {
      found.push_back("backwards: " + begin.dump() + end.dump());
    }
    if (!is_in_span(begin) || !is_in_span(end)) {
      found.push_back("in no span: " + begin.dump() + end.dump());
    }
  }
  return found;
}

}  // namespace troupe::test
