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
    messages.push_back(
        fmt::format("waiting at most {} (restart.wait_seconds) for {}; {}",
                    format_duration(static_cast<double>(config_.restart.wait_seconds)),
                    a_node_in_place_of(wait.lost), remedy()));
  }
  for (const std::string& refused : wait.refused) {
    messages.push_back(fmt::format("refused {}; the wait goes on", refused));
  }
  return messages;
}

std::vector<std::string> ReplacementWait::take(const EngineDomainChange& change) {
  waits_.erase(change.domain);
  serving_ = change.serving;
  domains_ = change.all;
  const std::string now = serving_domains(serving_, domains_);
  if (change.kind == EngineDomainChange::Kind::back) {
    return {fmt::format("step domain {} is back on {} after {}: {}", change.domain,
                        list(change.nodes), format_duration(change.seconds), now)};
  }
  const std::string where =
      change.requests == 0 ? ""
      : serving_ == 0
          ? fmt::format("; its {} unanswered requests wait", change.requests)
          : fmt::format("; its {} unanswered requests go to the others", change.requests);
  std::vector<std::string> messages{fmt::format("step domain {} on {} is dropped: {}{}{}",
                                                change.domain, list(change.nodes), now, where,
                                                change.why.empty() ? "" : "; " + change.why)};
  if (serving_ > 0) {
    messages.push_back(fmt::format("it comes back as soon as there is a node; {}", remedy()));
  } else {
    messages.push_back(
        fmt::format("waiting at most {} (restart.wait_seconds) for a node; {}",
                    format_duration(static_cast<double>(config_.restart.wait_seconds)), remedy()));
  }
  return messages;
}

std::string ReplacementWait::notice(Clock::time_point now) const {
  if (waits_.empty()) {
    return serving_ == domains_ ? "" : serving_domains(serving_, domains_);
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
