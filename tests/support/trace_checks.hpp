#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace troupe::test {

// What is checked of Chrome trace events.

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

/// Spans of a row that begin in another one and end after it. Times are rounded to 1 ns.
inline std::vector<std::string> overlaps(const nlohmann::json& events) {
  constexpr double rounding_us = 0.002;
  std::map<std::pair<int, int>, std::vector<nlohmann::json>> rows;
  for (const auto& event : events) {
    if (event["ph"] == "X") rows[{event["pid"], event["tid"]}].push_back(event);
  }
  std::vector<std::string> found;
  for (auto& [row, spans] : rows) {
    std::ranges::stable_sort(spans, {},
                             [](const auto& span) { return span["ts"].template get<double>(); });
    std::vector<double> ends;
    for (const auto& span : spans) {
      const double begin = span["ts"], end = begin + span["dur"].get<double>();
      while (!ends.empty() && ends.back() <= begin + rounding_us) ends.pop_back();
      if (!ends.empty() && end > ends.back() + rounding_us) found.push_back(span.dump());
      ends.push_back(end);
    }
  }
  return found;
}

/// Flows without both ends, whose ends are in no span, or that end before they begin by more than
/// `slack_us`.
inline std::vector<std::string> broken_flows(const nlohmann::json& events, double slack_us = 0) {
  std::map<std::string, std::vector<nlohmann::json>> flows;
  std::vector<std::string> found;
  for (const auto& event : events) {
    if (event["ph"] == "s" || event["ph"] == "f") flows[event["id"]].push_back(event);
  }
  const auto is_in_span = [&](const nlohmann::json& end) {
    for (const auto& span : events) {
      if (span["ph"] != "X" || span["pid"] != end["pid"] || span["tid"] != end["tid"]) continue;
      const double begin = span["ts"], at = end["ts"];
      if (begin <= at + 0.002 && at <= begin + span["dur"].get<double>() + 0.002) return true;
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
