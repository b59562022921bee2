#include "runtime/node/agent_inquiries.hpp"

#include <iterator>

namespace troupe {

std::int64_t agent_clock_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void AgentInquiries::begin(const AskProcesses& ask, std::map<ProcessId, std::string> asked) {
  NodeReport report{.request = ask.request, .clock_ns = agent_clock_ns(), .processes = {}};
  if (open_.size() >= max_open) {
    report.problem = "its agent has too many questions to answer already";
    return send_(std::move(report));
  }
  const auto open = open_.emplace(
      ask.request,
      Open{std::move(report), std::move(asked), Deadline(std::chrono::milliseconds(ask.limit_ms))});
  if (open.first->second.awaited.empty()) finish(open.first);
}

void AgentInquiries::take(ProcessReport report) {
  if (report.request == 0) {
    NodeReport last{.clock_ns = agent_clock_ns(), .processes = {}};
    last.processes.push_back(std::move(report));
    return send_(std::move(last));
  }
  const auto open = open_.find(report.request);
  if (open == open_.end() || open->second.awaited.erase(report.process) == 0) return;
  Open& of = open->second;
  if (of.bytes + report.bytes.size() > max_bytes) {
    of.report.silent.push_back(report.name);
  } else {
    of.bytes += report.bytes.size();
    of.report.processes.push_back(std::move(report));
  }
  if (open->second.awaited.empty()) finish(open);
}

void AgentInquiries::forget(ProcessId process) {
  for (auto open = open_.begin(); open != open_.end();) {
    const bool was_last = open->second.awaited.erase(process) > 0 && open->second.awaited.empty();
    open = was_last ? finish(open) : std::next(open);
  }
}

void AgentInquiries::tick() {
  for (auto open = open_.begin(); open != open_.end();) {
    open = open->second.until.is_over() ? finish(open) : std::next(open);
  }
}

AgentInquiries::Opens::iterator AgentInquiries::finish(Opens::iterator open) {
  for (const auto& [process, name] : open->second.awaited) {
    open->second.report.silent.push_back(name);
  }
  send_(std::move(open->second.report));
  return open_.erase(open);
}

}  // namespace troupe
