#include "runtime/troupe/trace_json.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "runtime/troupe/json_text.hpp"

namespace troupe {
namespace {

/// A span of a thread that makes a call has no end of its own: it is shown so long, if the next one
/// does not begin before.
constexpr std::int64_t shown_ns = 1000;

std::int64_t begin_of(const TimelineEvent& event) {
  return event.made_ns != 0 ? event.made_ns : event.begin_ns;
}

/// What a process says of itself may be wrong.
std::string_view name_of(const Timeline& timeline, const TimelineEvent& event) {
  return event.name < timeline.names.size() ? std::string_view(timeline.names[event.name]) : "?";
}

/// The first of its kind comes first.
template <class T>
using Earliest = std::priority_queue<T, std::vector<T>, std::greater<>>;

/// Rows of events that do not overlap.
class Rows {
 public:
  /// Returns the first row that is free for an event; events come in the order of their beginnings.
  std::size_t place(std::int64_t begin_ns, std::int64_t end_ns) {
    while (!busy_.empty() && busy_.top().first <= begin_ns) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    std::size_t row = busy_.size();
    if (!free_.empty()) {
      row = free_.top();
      free_.pop();
    }
    busy_.emplace(end_ns, row);
    return row;
  }

 private:
  Earliest<std::pair<std::int64_t, std::size_t>> busy_;  ///< rows by their events' ends
  Earliest<std::size_t> free_;
};

/// The calls that an actor runs.
class Running {
 public:
  /// Calls come in the order of their beginnings; `tid`: the call's row in the trace.
  void add(std::int64_t end_ns, std::uint64_t tid) { calls_.emplace_back(end_ns, tid); }
  /// The row of the latest one that has not ended; times do not fall.
  std::optional<std::uint64_t> latest(std::int64_t now_ns) {
    while (!calls_.empty() && calls_.back().first < now_ns) calls_.pop_back();
    return calls_.empty() ? std::nullopt : std::optional(calls_.back().second);
  }

 private:
  std::vector<std::pair<std::int64_t, std::uint64_t>> calls_;
};

/// Of each event of a thread that makes a call: when the same thread makes the next one.
std::vector<std::int64_t> next_made(const std::vector<TimelineEvent>& events) {
  std::vector<std::int64_t> next(events.size(), std::numeric_limits<std::int64_t>::max());
  std::unordered_map<std::uint32_t, std::int64_t> made;
  for (std::size_t i = events.size(); i-- > 0;) {
    const TimelineEvent& event = events[i];
    if (event.made_ns == 0 || event.actor != 0) continue;
    const auto [found, is_last] = made.try_emplace(event.thread, event.made_ns);
    if (is_last) continue;
    next[i] = std::exchange(found->second, event.made_ns);
  }
  return next;
}

class TraceWriter {
 public:
  explicit TraceWriter(const std::vector<ProcessTrace>& processes) : processes_(processes) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t cut = std::numeric_limits<std::int64_t>::min();
    for (const auto& [place, timeline] : processes) {
      std::int64_t first_here = std::numeric_limits<std::int64_t>::max();
      for (const TimelineEvent& event : timeline.events) {
        first_here = std::min(first_here, begin_of(event) - place.ahead_ns);
        if (event.made_ns == 0) ran_.emplace(event.call, name_of(timeline, event));
      }
      first = std::min(first, first_here);
      if (!timeline.has_all) cut = std::max(cut, first_here);
    }
    origin_ns_ = std::max(first, cut);
  }

  std::string write() {
    for (std::size_t i = 0; i < processes_.size(); ++i)
      write(processes_[i], static_cast<int>(i) + 1);
    add_flows();
    return text_ + "\n]}\n";
  }

 private:
  void add(const std::string& event) {
    text_ += separator_;
    text_ += event;
    separator_ = ",\n";
  }
  void name(std::string_view what, int pid, std::uint64_t tid, std::string_view name) {
    add(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid,
                    tid, json_string(name)));
  }
  double us(const TimelinePlace& place, std::int64_t ns) const {
    return static_cast<double>(ns - place.ahead_ns - origin_ns_) * 1e-3;
  }
  void add_flows();

  void write(const ProcessTrace& process, int pid);
  void write_ran(const ProcessTrace& process, const TimelineEvent& event, int pid,
                 std::uint64_t tid);
  /// A time that a call has spent otherwise than running.
  void write_wait(std::string_view what, const std::string& title, std::uint64_t call,
                  double begin_us, double end_us, int pid, std::uint64_t tid);
  void write_made(const ProcessTrace& process, const TimelineEvent& event, std::int64_t until_ns,
                  int pid, std::uint64_t tid);

  const std::vector<ProcessTrace>& processes_;
  std::int64_t origin_ns_ = 0;
  std::unordered_map<std::uint64_t, std::string_view> ran_;  ///< calls that ran, and their names
  /// Where a flow begins or ends.
  struct FlowEnd {
    double at_us = 0;
    int pid = 0;
    std::uint64_t tid = 0;
  };
  std::map<std::uint64_t, FlowEnd> made_at_, ran_at_;       ///< by call
  std::unordered_map<std::uint64_t, std::int64_t> paused_;  ///< when parts of calls have ended
  std::string text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator_ = "\n";
};

/// Those of which both ends are there.
void TraceWriter::add_flows() {
  for (const auto& [call, made] : made_at_) {
    const auto ran = ran_at_.find(call);
    if (ran == ran_at_.end()) continue;
    const auto end = [&](char phase, const FlowEnd& at, std::string_view more) {
      add(fmt::format(
          R"({{"name":"call","cat":"call","ph":"{}","id":"{:x}","ts":{:.3f},"pid":{},"tid":{}{}}})",
          phase, call, at.at_us, at.pid, at.tid, more));
    };
    end('s', made, "");
    end('f', ran->second, R"(,"bp":"e")");
  }
}

void TraceWriter::write_ran(const ProcessTrace& process, const TimelineEvent& event, int pid,
                            std::uint64_t tid) {
  const double begin = us(process.place, event.begin_ns);
  const std::string title = json_string(name_of(process.timeline, event));
  add(fmt::format(
      R"({{"name":{},"cat":"run","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}}})", title,
      begin, static_cast<double>(event.end_ns - event.begin_ns) * 1e-3, pid, tid));
  const auto [paused, is_first] = paused_.try_emplace(event.call, event.end_ns);
  if (!is_first) {
    const double pause = us(process.place, std::exchange(paused->second, event.end_ns));
    if (event.is_resumed) write_wait("suspended", title, event.call, pause, begin, pid, tid);
  }
  if (!event.is_resumed) ran_at_[event.call] = {begin, pid, tid};
  const double queued = us(process.place, event.queued_ns);
  if (event.queued_ns == 0 || queued < 0) return;
  write_wait("queued", title, event.call, queued, begin, pid, tid);
}

void TraceWriter::write_wait(std::string_view what, const std::string& title, std::uint64_t call,
                             double begin_us, double end_us, int pid, std::uint64_t tid) {
  for (const auto& [phase, at] : {std::pair('b', begin_us), std::pair('e', end_us)}) {
    add(fmt::format(
        R"({{"name":{},"cat":"{}","ph":"{}","id":"{:x}","ts":{:.3f},"pid":{},"tid":{}}})", title,
        what, phase, call, at, pid, tid));
  }
}

void TraceWriter::write_made(const ProcessTrace& process, const TimelineEvent& event,
                             std::int64_t until_ns, int pid, std::uint64_t tid) {
  const auto ran = ran_.find(event.call);
  const double at = us(process.place, event.made_ns);
  if (event.actor == 0) {
    const std::string title(ran != ran_.end() ? ran->second : name_of(process.timeline, event));
    const std::int64_t shown = std::min(shown_ns, until_ns - event.made_ns);
    add(fmt::format(
        R"({{"name":{},"cat":"made","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}}})",
        json_string("call " + title), at, static_cast<double>(shown) * 1e-3, pid, tid));
  }
  made_at_[event.call] = {at, pid, tid};
}

void TraceWriter::write(const ProcessTrace& process, int pid) {
  const auto& [place, timeline] = process;
  name("process_name", pid, 1, fmt::format("{} on {} (pid {})", place.name, place.node, place.pid));
  std::vector<TimelineEvent> events;
  std::ranges::copy_if(timeline.events, std::back_inserter(events), [&](const auto& event) {
    return begin_of(event) - place.ahead_ns >= origin_ns_;
  });
  std::ranges::stable_sort(events, {}, begin_of);
  // Of each actor and each thread: rows of the calls that it ran, and where it makes calls now.
  std::map<std::uint64_t, Rows> rows;
  std::map<std::pair<std::uint64_t, std::size_t>, std::uint64_t> numbers;
  std::map<std::uint32_t, std::uint64_t> threads;
  std::uint64_t next = 0;
  std::unordered_map<std::uint64_t, Running> running;
  const auto until_ns = next_made(events);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TimelineEvent& event = events[i];
    if (event.made_ns == 0) {
      const std::size_t row = rows[event.actor].place(event.begin_ns, event.end_ns);
      const auto [found, is_new] = numbers.try_emplace({event.actor, row}, next + 1);
      if (is_new) {
        ++next;
        const auto known = timeline.actors.find(event.actor);
        std::string title = known == timeline.actors.end() ? "" : known->second;
        if (row > 0) title += fmt::format(" ({})", row + 1);
        name("thread_name", pid, found->second, title);
      }
      running[event.actor].add(event.end_ns, found->second);
      write_ran(process, event, pid, found->second);
    } else if (event.actor != 0) {
      // The latest of the actor's calls that has not ended has made it.
      const auto maker = running[event.actor].latest(event.made_ns);
      if (maker) write_made(process, event, 0, pid, *maker);
    } else {
      const auto [found, is_new] = threads.try_emplace(event.thread, next + 1);
      if (is_new) {
        ++next;
        const auto known = timeline.threads.find(event.thread);
        name("thread_name", pid, found->second,
             fmt::format("thread {} ({})", event.thread,
                         known == timeline.threads.end() ? "" : known->second));
      }
      write_made(process, event, until_ns[i], pid, found->second);
    }
  }
}

}  // namespace

std::string trace_json(const std::vector<ProcessTrace>& processes) {
  return TraceWriter(processes).write();
}

}  // namespace troupe
