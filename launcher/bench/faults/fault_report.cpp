#include "launcher/bench/faults/fault_report.hpp"

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include "actors/telemetry/distribution.hpp"
#include "launcher/bench/faults/fault_targets.hpp"
#include "launcher/report/json_numbers.hpp"
#include "launcher/terminal/format_bytes.hpp"
#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

/// `text` in so many columns, cut at the front if it is longer: ends of names tell them apart.
std::string column(const std::string& text, std::size_t columns) {
  std::string shown = printable(text);
  if (width_of(shown) > columns) shown = ".." + std::string(end_of(shown, columns - 2));
  return shown + std::string(columns - std::min(columns, width_of(shown)), ' ');
}

std::string optional_number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// What faults of one kind took.
struct Times {
  std::int64_t count = 0;
  std::uint64_t sequences = 0;
  std::vector<double> noticed_ms, next_step_seconds;

  void add(const FaultRecord& fault) {
    ++count;
    sequences += fault.sequences;
    if (fault.noticed_ms) noticed_ms.push_back(*fault.noticed_ms);
    if (fault.next_step_seconds) next_step_seconds.push_back(*fault.next_step_seconds);
  }
};

std::uint64_t sampled_again(const FaultFigures& figures) {
  return figures.sampled_tokens - std::min(figures.sampled_tokens, figures.answered_tokens);
}

std::map<FaultKind, Times> by_kind(std::span<const FaultRecord> faults) {
  std::map<FaultKind, Times> times;
  for (const FaultRecord& fault : faults) times[fault.kind].add(fault);
  return times;
}

double most(const std::vector<double>& values) {
  return values.empty() ? 0 : std::ranges::max(values);
}

std::string quantiles(const std::vector<double>& values, int digits) {
  if (values.empty()) return fmt::format("{:>9}{:>9}{:>9}", "-", "-", "-");
  const Distribution of = distribution_of(values);
  return fmt::format("{:>9.{}f}{:>9.{}f}{:>9.{}f}", of.p50, digits, of.p95, digits, most(values),
                     digits);
}

std::string kind_table(const FaultFigures& figures) {
  std::string table = fmt::format("{:<10}{:>6}{:>27}{:>27}{:>9}\n", "kind", "count",
                                  "noticed after, ms", "next step after, s", "computed");
  table += fmt::format("{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "", "P50", "P95", "most",
                       "P50", "P95", "most", "anew");
  for (const auto& [kind, times] : by_kind(figures.faults)) {
    table += fmt::format("{:<10}{:>6}{}{}{:>9}\n", to_string(kind), times.count,
                         quantiles(times.noticed_ms, 1), quantiles(times.next_step_seconds, 2),
                         times.sequences);
  }
  return table;
}

std::string target_table(const FaultFigures& figures) {
  const auto targets = fault_targets(figures.faults);
  if (targets.empty()) return "";
  std::string table =
      fmt::format("\n{:<26}{:>16}{:>9}{:>9}{:>9}\n", "target", "at most", "P50", "P95", "most");
  for (const FaultTarget& target : targets) {
    const int digits = target.unit == "s" ? 2 : 1;
    table += fmt::format(
        "{:<26}{:>16}{:>9.{}f}{:>9.{}f}{:>9.{}f}  {}\n", target.what,
        fmt::format("{:.0f} {}{}", target.limit, target.unit, target.is_of_p95 ? " (P95)" : ""),
        target.p50, digits, target.p95, digits, target.most, digits,
        target.is_met() ? "met" : "missed");
  }
  return table;
}

std::uint64_t largest(const MemoryReading& reading) {
  std::uint64_t bytes = 0;
  for (const AgentMemory& agent : reading.agents) bytes = std::max(bytes, agent.bytes);
  return bytes;
}

std::string memory_table(const FaultFigures& figures) {
  if (!figures.memory_before || !figures.memory_after) return "";
  const MemoryReading& before = *figures.memory_before;
  const MemoryReading& after = *figures.memory_after;
  const auto row = [](std::string_view name, std::uint64_t from, std::uint64_t to) {
    return fmt::format("{:<26}{:>12}{:>16}\n", name, format_bytes(from), format_bytes(to));
  };
  return fmt::format("\n{:<26}{:>12}{:>16}\n", "memory (resident)", "before", "after") +
         row("this process", before.driver, after.driver) +
         row(after.agents.size() == 1 ? "agent" : "largest agent", largest(before), largest(after));
}

/// Tokens that an executor has reported are not sampled again by its successor; those of the 200 ms
/// before its end are.
std::string token_line(const FaultFigures& figures) {
  if (!figures.is_complete) return "";
  return fmt::format("\n{} tokens of answers were sampled, {} of them again\n",
                     figures.answered_tokens, sampled_again(figures));
}

std::string verdict(const FaultFigures& figures) {
  const std::uint64_t rounds = figures.requests > 0 ? figures.compared / figures.requests : 0;
  std::string text;
  if (figures.different == 0) {
    text = fmt::format("{} {} answers of {} round{} are the bytes of the undisturbed run",
                       figures.is_complete ? "all" : "the", figures.compared, rounds,
                       rounds == 1 ? "" : "s");
    if (figures.compared == 0) text = "no answer was compared";
    return text + "\n";
  }
  text = fmt::format("{} of {} answers are not the bytes of the undisturbed run:\n",
                     figures.different, figures.compared);
  for (const AnswerDifference& one : figures.differences) {
    text += fmt::format("  round {}, request {}: {}\n", one.round, one.request, one.what);
  }
  const std::uint64_t told = figures.differences.size();
  if (figures.different > told) text += fmt::format("  and {} more\n", figures.different - told);
  return text;
}

ordered_json times_json(const std::vector<double>& values) {
  ordered_json json = distribution_json(distribution_of(values));
  json["most"] = rounded(most(values));
  return json;
}

ordered_json fault_json(const FaultRecord& fault) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? ordered_json(rounded(*value)) : ordered_json();
  };
  return {{"kind", to_string(fault.kind)},
          {"victim", fault.victim},
          {"node", fault.node},
          {"pid", fault.pid},
          {"at_seconds", rounded(fault.at_seconds)},
          {"noticed_ms", optional(fault.noticed_ms)},
          {"next_step_seconds", optional(fault.next_step_seconds)},
          {"lost_processes", fault.lost},
          {"sequences", fault.sequences},
          {"driver_bytes", fault.driver_bytes}};
}

ordered_json memory_json(const std::optional<MemoryReading>& reading) {
  if (!reading) return {};
  ordered_json agents = ordered_json::array();
  for (const AgentMemory& agent : reading->agents) {
    agents.push_back({{"node", agent.node}, {"pid", agent.pid}, {"bytes", agent.bytes}});
  }
  return {{"driver_bytes", reading->driver}, {"agents", std::move(agents)}};
}

}  // namespace

std::string fault_heading() {
  return fmt::format("{:>5}  {:>8}  {:<8}  {:<12}  {:<10}  {:>7}  {:>7}  {:>4}", "fault", "time",
                     "kind", "victim", "on", "noticed", "step", "anew");
}

std::string fault_line(std::size_t number, const FaultRecord& fault) {
  const std::string noticed = optional_number(fault.noticed_ms, fault.noticed_ms < 100 ? 1 : 0);
  return fmt::format("{:>5}  {:>8}  {:<8}  {}  {}  {:>4} ms  {:>5} s  {:>4}", number,
                     clock_time(fault.at_seconds), to_string(fault.kind), column(fault.victim, 12),
                     column(fault.node, 10), noticed, optional_number(fault.next_step_seconds, 2),
                     fault.sequences);
}

std::string to_table(const FaultFigures& figures) {
  return kind_table(figures) + target_table(figures) + memory_table(figures) + token_line(figures) +
         "\n" + verdict(figures);
}

ordered_json to_json(const FaultFigures& figures) {
  ordered_json json;
  json["seed"] = figures.seed;
  json["interval_seconds"] = figures.interval_seconds;
  json["planned"] = figures.planned;
  json["made"] = figures.faults.size();
  json["seconds"] = rounded(figures.seconds);
  json["is_complete"] = figures.is_complete;
  json["kinds"] = ordered_json::object();
  for (const auto& [kind, times] : by_kind(figures.faults)) {
    json["kinds"][std::string(to_string(kind))] = {
        {"count", times.count},
        {"noticed_ms", times_json(times.noticed_ms)},
        {"next_step_seconds", times_json(times.next_step_seconds)},
        {"sequences", times.sequences}};
  }
  json["targets"] = ordered_json::array();
  for (const FaultTarget& target : fault_targets(figures.faults)) {
    json["targets"].push_back({{"what", target.what},
                               {"unit", target.unit},
                               {"limit", target.limit},
                               {"of", target.is_of_p95 ? "p95" : "most"},
                               {"p50", rounded(target.p50)},
                               {"p95", rounded(target.p95)},
                               {"most", rounded(target.most)},
                               {"is_met", target.is_met()}});
  }
  json["faults"] = ordered_json::array();
  for (const FaultRecord& fault : figures.faults) json["faults"].push_back(fault_json(fault));
  json["memory_before"] = memory_json(figures.memory_before);
  json["memory_after"] = memory_json(figures.memory_after);
  json["tokens_of_answers"] = figures.answered_tokens;
  json["tokens_sampled_again"] = sampled_again(figures);
  json["answers_compared"] = figures.compared;
  json["answers_different"] = figures.different;
  json["differences"] = ordered_json::array();
  for (const AnswerDifference& one : figures.differences) {
    json["differences"].push_back(
        {{"round", one.round}, {"request", one.request}, {"what", one.what}});
  }
  return json;
}

}  // namespace troupe
