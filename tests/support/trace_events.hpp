#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe::tests {

/// Checks a trace by the "Trace Event Format" (the JSON object form, of which Troupe writes
/// complete, metadata, flow and asynchronous events), and by our own rules: every thread has a
/// name, and its spans are ordered by their beginnings and disjoint or nested.
class TraceEvents {
 public:
  /// Returns each mistake with the event concerned.
  static std::vector<std::string> mistakes_of(const nlohmann::json& trace) {
    TraceEvents events;
    events.check(trace);
    return std::move(events.mistakes_);
  }

 private:
  using Thread = std::pair<std::int64_t, std::int64_t>;
  /// Times are written with three digits.
  static constexpr double rounding_us = 0.002;

  void expect(bool right, const std::string& what, const nlohmann::json& event) {
    if (!right && mistakes_.size() < 20) mistakes_.push_back(what + ": " + event.dump());
  }

  void check(const nlohmann::json& trace) {
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
      mistakes_.emplace_back("no object with an array traceEvents");
      return;
    }
    const auto unit = trace.value("displayTimeUnit", "ms");
    expect(unit == "ms" || unit == "ns", "displayTimeUnit", unit);
    for (const auto& event : trace["traceEvents"]) check_event(event);
    for (const Thread& thread : with_spans_) {
      const nlohmann::json where = {{"pid", thread.first}, {"tid", thread.second}};
      expect(named_processes_.contains(thread.first), "no process_name", where);
      expect(named_threads_.contains(thread), "no thread_name", where);
    }
  }

  void check_event(const nlohmann::json& event) {
    const auto text = [&](const char* key) {
      return event.contains(key) && event[key].is_string();
    };
    const auto whole = [&](const char* key) {
      return event.contains(key) && event[key].is_number_integer();
    };
    const bool whose =
        event.is_object() && text("name") && text("ph") && whole("pid") && whole("tid");
    expect(whose, "name, ph, pid and tid", event);
    if (!whose) return;
    expect(!event["name"].get<std::string>().empty(), "an empty name", event);
    const Thread thread(event["pid"].get<std::int64_t>(), event["tid"].get<std::int64_t>());
    expect(thread.first > 0 && thread.second > 0, "pid and tid above 0", event);
    expect(!event.contains("args") || event["args"].is_object(), "args", event);
    if (event["ph"] == "M") {
      check_metadata(event, thread);
    } else if (event["ph"] == "X") {
      check_span(event, thread);
    } else if (event["ph"] == "s" || event["ph"] == "f" || event["ph"] == "b" ||
               event["ph"] == "e") {
      expect(text("id") && text("cat"), "id and cat", event);
      expect(event.contains("ts") && event["ts"].is_number() && event["ts"] >= 0, "ts", event);
    } else {
      expect(false, "ph", event);
    }
  }

  void check_metadata(const nlohmann::json& event, const Thread& thread) {
    const std::string name = event["name"];
    const auto args = event.value("args", nlohmann::json::object());
    if (name == "process_name" || name == "thread_name") {
      expect(args.contains("name") && args["name"].is_string(), "args.name", event);
    } else if (name == "process_sort_index" || name == "thread_sort_index") {
      expect(args.contains("sort_index") && args["sort_index"].is_number_integer(),
             "args.sort_index", event);
    } else {
      expect(false, "unknown metadata", event);
    }
    if (name == "thread_name") expect(named_threads_.insert(thread).second, "named twice", event);
    if (name != "process_name") return;
    const auto [known, is_new] = named_processes_.emplace(thread.first, args.value("name", ""));
    expect(is_new || known->second == args.value("name", ""), "two names of a process", event);
  }

  void check_span(const nlohmann::json& event, const Thread& thread) {
    const auto number = [&](const char* key) {
      return event.contains(key) && event[key].is_number() ? event[key].get<double>() : NAN;
    };
    const double begin = number("ts"), length = number("dur");
    expect(begin >= 0 && std::isfinite(begin), "ts", event);
    expect(length >= 0 && std::isfinite(length), "dur", event);
    expect(event.contains("cat") && event["cat"].is_string(), "cat", event);
    with_spans_.insert(thread);
    double& latest = latest_[thread];
    expect(begin >= latest, "before an earlier one", event);
    latest = std::max(latest, begin);
    std::vector<double>& open = open_[thread];
    while (!open.empty() && open.back() <= begin + rounding_us) open.pop_back();
    if (!open.empty()) {
      expect(begin + length <= open.back() + rounding_us, "ends after the one around it", event);
    }
    open.push_back(begin + length);
  }

  std::vector<std::string> mistakes_;
  std::map<std::int64_t, std::string> named_processes_;
  std::set<Thread> named_threads_, with_spans_;
  std::map<Thread, double> latest_;
  std::map<Thread, std::vector<double>> open_;  ///< ends of the enclosing spans
};

}  // namespace troupe::tests
