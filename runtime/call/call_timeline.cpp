#include "runtime/call/call_timeline.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace troupe {
namespace {

/// The actor whose method runs on this thread, while calls are recorded.
thread_local std::uint64_t caller = 0;

std::string thread_name(std::uint32_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/comm", thread));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

void CallTimeline::set_caller(std::uint64_t actor) { caller = actor; }

void CallTimeline::start(std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  ring_.clear();
  ring_.shrink_to_fit();
  names_.clear();
  actors_.clear();
  next_ = 0;
  has_all_ = true;
  until_ns_ = now() + limit / std::chrono::nanoseconds(1);
  is_on_.store(true, std::memory_order_relaxed);
}

Timeline CallTimeline::take() {
  stop();
  Timeline taken;
  const std::lock_guard lock(mutex_);
  std::ranges::rotate(ring_, ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  taken.events = std::exchange(ring_, {});
  taken.has_all = std::exchange(has_all_, true);
  taken.actors = std::exchange(actors_, {});
  taken.names.resize(names_.size());
  for (const auto& [name, number] : names_) taken.names[number] = name;
  names_.clear();
  next_ = 0;
  for (const TimelineEvent& event : taken.events) {
    if (event.thread != 0 && !taken.threads.contains(event.thread)) {
      taken.threads.emplace(event.thread, thread_name(event.thread));
    }
  }
  return taken;
}

bool CallTimeline::is_in_time(std::int64_t time) {
  if (is_on() && time < until_ns_) return true;
  stop();
  return false;
}

void CallTimeline::add(TimelineEvent event, const std::string& name) {
  event.name = names_.try_emplace(name, static_cast<std::uint32_t>(names_.size())).first->second;
  if (ring_.size() < capacity) {
    ring_.push_back(event);
    return;
  }
  has_all_ = false;
  ring_[next_] = event;
  next_ = (next_ + 1) % capacity;
}

void CallTimeline::note_made(std::uint64_t call, std::string_view type) {
  TimelineEvent event{.call = call, .actor = caller, .made_ns = now()};
  if (event.actor == 0) event.thread = static_cast<std::uint32_t>(::gettid());
  const std::lock_guard lock(mutex_);
  if (is_in_time(event.made_ns)) add(event, std::string(type));
}

void CallTimeline::note_run(std::uint64_t call, const ActorAddress& actor, std::string_view method,
                            std::int64_t queued_ns, std::int64_t begin_ns, bool is_resumed) {
  const TimelineEvent event{.call = call,
                            .actor = actor.id,
                            .queued_ns = queued_ns,
                            .begin_ns = begin_ns,
                            .end_ns = now(),
                            .is_resumed = is_resumed};
  const std::lock_guard lock(mutex_);
  if (!is_in_time(event.end_ns)) return;
  actors_.try_emplace(actor.id, actor.name);
  add(event, fmt::format("{}.{}", actor.type, method));
}

}  // namespace troupe
