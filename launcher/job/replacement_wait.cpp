#include "launcher/job/replacement_wait.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launcher/job/exit_messages.hpp"
#include "launcher/progress/progress_view.hpp"

namespace troupe {
namespace {

/// The names of so many nodes fit on a line.
constexpr std::size_t named_nodes = 4;

/// "'h2'", "'h2' and 'h3'", "'h2', 'h3', 'h4', 'h5' and 3 more".
std::string list(const std::vector<std::string>& nodes) {
  const std::size_t named = std::min(nodes.size(), named_nodes);
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == nodes.size();
    text += fmt::format("{}'{}'", i == 0 ? "" : is_last ? " and " : ", ", nodes[i]);
  }
  if (nodes.size() > named) text += fmt::format(" and {} more", nodes.size() - named);
  return text;
}

std::string a_node_in_place_of(const std::vector<std::string>& lost) {
  return fmt::format("{} in place of {}", lost.size() == 1 ? "a node" : "nodes", list(lost));
}

}  // namespace

std::string ReplacementWait::at_most(const std::string& whom) const {
  return fmt::format("waiting at most {} (restart.wait_seconds) for {}; {}",
                     format_duration(static_cast<double>(config_.restart.wait_seconds)), whom,
                     remedy());
}

std::string ReplacementWait::those_that_serve() const {
  return serving_domains(serving_, domains_);
}

std::string ReplacementWait::way_to_join() const {
  const std::string& launch = config_.cluster.launch;
  if (launch == "join") return "on a node that is to join run:\n  " + join_command_;
  const std::string command = "launcher join " + config_.name;
  if (launch == "slurm") return fmt::format("run `{}` in another allocation of Slurm", command);
  return fmt::format("`{} HOST...` takes hosts in", command);
}

std::string ReplacementWait::remedy() const {
  const std::string& launch = config_.cluster.launch;
  if (launch == "join") {
    return "on a node that is to take its place run:\n  " + join_command_;
  }
  if (launch == "local") return "its agent is started again every 2 s";
  return "its agent is started again every 2 s: bring it back, or stop the job with Ctrl-C, and go "
         "on with the same command on other hosts";
}

std::vector<std::string> ReplacementWait::take(const EngineWait& wait, Clock::time_point now) {
  std::vector<std::string> messages;
  if (!wait.found.empty()) {
    waits_.erase(wait.domain);
    messages.push_back(fmt::format("the wait is over after {}: {} {} the place of {}",
                                   format_duration(wait.seconds), list(wait.found),
                                   wait.found.size() == 1 ? "takes" : "take", list(wait.lost)));
    return messages;
  }
  if (wait.is_dropped) {
    for (const std::string& refused : wait.refused) messages.push_back("not taken: " + refused);
    return messages;
  }
  const auto so_far =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait.seconds));
  const auto [known, is_new] = waits_.try_emplace(wait.domain, Wait{wait.lost, now - so_far});
  const bool has_grown = known->second.lost.size() < wait.lost.size();
  if (has_grown) known->second = {wait.lost, now};  // all have the whole time again
  if (is_new || has_grown) {
    messages.push_back(at_most(a_node_in_place_of(wait.lost)));
  }
  for (const std::string& refused : wait.refused) {
    messages.push_back(fmt::format("refused {}; the wait goes on", refused));
  }
  return messages;
}

std::vector<std::string> ReplacementWait::take(const EngineDomainChange& change) {
  using Kind = EngineDomainChange::Kind;
  if (change.kind == Kind::answered) return {};  // of interest in the log and the report
  waits_.erase(change.domain);
  serving_ = change.serving;
  domains_ = change.all;
  if (change.kind == Kind::awaited) {
    return {fmt::format("{}; the others have no node yet, and come as soon as there are some; {}",
                        those_that_serve(), way_to_join())};
  }
  if (change.kind == Kind::back) {
    const std::string after = format_duration(change.seconds);
    return {fmt::format(
        "step domain {} {}: {}", change.domain,
        change.is_new ? fmt::format("serves on {}, {} after the start", list(change.nodes), after)
                      : fmt::format("is back on {} after {}", list(change.nodes), after),
        those_that_serve())};
  }
  const std::string where =
      change.requests == 0 ? ""
      : serving_ == 0
          ? fmt::format("; its {} unanswered requests wait", change.requests)
          : fmt::format("; its {} unanswered requests go to the others", change.requests);
  return {
      fmt::format("step domain {} on {} is dropped: {}{}{}", change.domain, list(change.nodes),
                  those_that_serve(), where, change.why.empty() ? "" : "; " + change.why),
      serving_ > 0 ? "it comes back as soon as there is a node; " + remedy() : at_most("a node")};
}

std::string ReplacementWait::notice(Clock::time_point now) const {
  if (waits_.empty()) {
    return serving_ == domains_ ? "" : those_that_serve();
  }
  Clock::time_point since = now;
  std::set<std::string> lost;
  for (const auto& [domain, wait] : waits_) {
    since = std::min(since, wait.since);
    lost.insert(wait.lost.begin(), wait.lost.end());
  }
  return fmt::format("waiting {} of at most {} for {}",
                     format_duration(std::chrono::duration<double>(now - since).count()),
                     format_duration(static_cast<double>(config_.restart.wait_seconds)),
                     a_node_in_place_of({lost.begin(), lost.end()}));
}

}  // namespace troupe
