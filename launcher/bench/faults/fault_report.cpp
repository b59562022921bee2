#include "launcher/bench/faults/fault_report.hpp"

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include "actors/telemetry/distribution.hpp"
#include "launcher/bench/faults/fault_targets.hpp"
#include "launcher/report/json_numbers.hpp"
#include "runtime/base/format_bytes.hpp"
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
  std::vector<double> kv_tokens, in_flight_tokens, unsaved_tokens;

  void add(const FaultRecord& fault) {
    ++count;
    sequences += fault.sequences;
    kv_tokens.push_back(static_cast<double>(fault.kv_tokens));
    in_flight_tokens.push_back(static_cast<double>(fault.in_flight_tokens));
    unsaved_tokens.push_back(static_cast<double>(fault.unsaved_tokens));
    if (fault.noticed_ms) noticed_ms.push_back(*fault.noticed_ms);
    if (fault.next_step_seconds) next_step_seconds.push_back(*fault.next_step_seconds);
  }
};

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

/// P50 and the most, of a fault.
std::string middle_and_most(const std::vector<double>& values) {
  if (values.empty()) return fmt::format("{:>9}{:>9}", "-", "-");
  return fmt::format("{:>9.0f}{:>9.0f}", distribution_of(values).p50, most(values));
}

std::string lost_work_table(const FaultFigures& figures) {
  if (figures.faults.empty()) return "";
  std::string table = fmt::format("\n{:<16}{:>18}{:>18}{:>18}\n", "tokens computed", "keys, values",
                                  "in flight", "not handed over");
  table += fmt::format("{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "again by a fault", "P50", "most",
                       "P50", "most", "P50", "most");
  for (const auto& [kind, times] : by_kind(figures.faults)) {
    table +=
        fmt::format("{:<16}{}{}{}\n", to_string(kind), middle_and_most(times.kv_tokens),
                    middle_and_most(times.in_flight_tokens), middle_and_most(times.unsaved_tokens));
  }
  return table;
}

std::string domain_table(const FaultFigures& figures) {
  std::vector<double> away;
  std::size_t dropped = 0;
  std::uint64_t requests = 0;
  for (const DomainRecord& record : figures.domain_changes) {
    if (record.change.kind == EngineDomainChange::Kind::back) {
      away.push_back(record.change.seconds);
    } else {
      ++dropped;
      requests += record.change.requests;
    }
  }
  if (dropped == 0) return "";
  std::string text = fmt::format("\n{} step domain{} dropped with {} requests, {} back\n", dropped,
                                 dropped == 1 ? " was" : "s were", requests, away.size());
  text += fmt::format("{:<43}{}\n", "back after, s", quantiles(away, 1));
  for (const std::string& one : figures.domain_contradictions) text += one + "\n";
  return text;
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

/// Tokens that an executor has handed over are not sampled again by its successor; those of the
/// 200 ms before its end are.
std::string token_line(const FaultFigures& figures) {
  if (!figures.is_complete) return "";
  std::string line = fmt::format("\n{} tokens of answers were sampled, {} of them again\n",
                                 figures.answered_tokens, figures.sampled_again());
  if (!figures.counts_agree) return line;
  const std::uint64_t saved = figures.saved_and_sampled_again();
  return line + fmt::format("{} of these had been handed over\n",
                            saved == 0 ? "none" : std::to_string(saved));
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
          {"kv_tokens", fault.kv_tokens},
          {"in_flight_tokens", fault.in_flight_tokens},
          {"unsaved_tokens", fault.unsaved_tokens},
          {"dropped_domains", fault.dropped_domains},
          {"driver_bytes", fault.driver_bytes}};
}

ordered_json domain_json(const DomainRecord& record) {
  const EngineDomainChange& change = record.change;
  const bool is_back = change.kind == EngineDomainChange::Kind::back;
  return {{"change", is_back ? "back" : "dropped"},
          {"domain", change.domain},
          {"at_seconds", rounded(record.at_seconds)},
          {"nodes", change.nodes},
          {"why", change.why},
          {"requests", change.requests},
          {"unsaved_tokens", change.unsaved_tokens},
          {"serving", change.serving},
          {"domains", change.all},
          {"away_seconds", is_back ? ordered_json(rounded(change.seconds)) : ordered_json()}};
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

std::string domain_line(const DomainRecord& record) {
  const EngineDomainChange& change = record.change;
  const std::string now = fmt::format("{} of {} serve", change.serving, change.all);
  const std::string what = change.kind == EngineDomainChange::Kind::back
                               ? fmt::format("step domain {} is back after {:.1f} s; {}",
                                             change.domain, change.seconds, now)
                               : fmt::format("step domain {} is dropped; {}, {} requests move",
                                             change.domain, now, change.requests);
  return fmt::format("{:>5}  {:>8}  {}", "", clock_time(record.at_seconds), what);
}

std::string to_table(const FaultFigures& figures) {
  return kind_table(figures) + lost_work_table(figures) + target_table(figures) +
         memory_table(figures) + domain_table(figures) + token_line(figures) + "\n" +
         verdict(figures);
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
        {"sequences", times.sequences},
        {"kv_tokens", times_json(times.kv_tokens)},
        {"in_flight_tokens", times_json(times.in_flight_tokens)},
        {"unsaved_tokens", times_json(times.unsaved_tokens)}};
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
  json["tokens_sampled_again"] = figures.sampled_again();
  json["tokens_not_handed_over"] = figures.unsaved_tokens;
  json["saved_tokens_sampled_again"] = figures.counts_agree && figures.is_complete
                                           ? ordered_json(figures.saved_and_sampled_again())
                                           : ordered_json();
  json["domain_changes"] = ordered_json::array();
  for (const DomainRecord& record : figures.domain_changes) {
    json["domain_changes"].push_back(domain_json(record));
  }
  json["domain_contradictions"] = figures.domain_contradictions;
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
