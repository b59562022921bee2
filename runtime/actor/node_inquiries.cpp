#include "runtime/actor/node_inquiries.hpp"

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

/// For a question and its answers to travel.
constexpr std::chrono::milliseconds way{500};

std::int64_t in_ns(Clock::duration time) { return time / std::chrono::nanoseconds(1); }

}  // namespace

std::vector<NodeInquiries::Answer> NodeInquiries::ask(const std::vector<std::size_t>& nodes,
                                                      Inquiry what, ProcessId process,
                                                      std::chrono::milliseconds limit,
                                                      std::chrono::milliseconds record) {
  return ask(
      nodes,
      {.what = what, .process = process, .limit_ms = limit.count(), .record_ms = record.count()});
}

std::vector<NodeInquiries::Answer> NodeInquiries::ask(const std::vector<std::size_t>& nodes,
                                                      AskProcesses ask) {
  std::unique_lock lock(mutex_);
  if (is_stopped_) return {};
  ask.request = next_++;
  Open& open = open_[ask.request];
  for (const std::size_t node : nodes) open.awaited.emplace(node, Clock::now());
  for (const std::size_t node : nodes) {
    lock.unlock();
    const bool is_sent = send_(node, ask).ok();
    lock.lock();
    if (!is_sent) open.awaited.erase(node);
  }
  (void)wait_for(changed_, lock, std::chrono::milliseconds(ask.limit_ms) + way,
                 [&] { return is_stopped_ || open.awaited.empty(); });
  std::vector<Answer> answers = std::move(open.answers);
  open_.erase(ask.request);
  return answers;
}

bool NodeInquiries::take(std::size_t node, NodeReport report) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (report.request == 0) return false;
  const auto open = open_.find(report.request);
  if (open == open_.end()) return true;  // it is too late
  const auto asked = open->second.awaited.find(node);
  if (asked == open->second.awaited.end()) return true;
  const std::int64_t way_ns = in_ns(now - asked->second);
  const std::int64_t middle_ns = in_ns(asked->second.time_since_epoch()) + way_ns / 2;
  open->second.answers.push_back(
      {node, report.clock_ns - middle_ns, way_ns / 2, std::move(report)});
  open->second.awaited.erase(asked);
  if (open->second.awaited.empty()) changed_.notify_all();
  return true;
}

void NodeInquiries::lose(std::size_t node) {
  const std::lock_guard lock(mutex_);
  for (auto& [request, open] : open_) open.awaited.erase(node);
  changed_.notify_all();
}

void NodeInquiries::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

}  // namespace troupe
