#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// A call as one of its two processes saw it: there is one event where it was made, and one where
/// it ran, or one for each part of it. Times are nanoseconds of the host's steady clock.
struct TimelineEvent {
  std::uint64_t call = 0;      ///< the same at both ends, and of no other call of the cluster
  std::uint64_t actor = 0;     ///< where it ran; or whose method made it, 0 if none did
  std::uint32_t thread = 0;    ///< that made it, if no actor did; the kernel's number
  std::uint32_t name = 0;      ///< in Timeline::names: "Counter.add" where it ran, else "Counter"
  std::int64_t made_ns = 0;    ///< 0 where it ran
  std::int64_t queued_ns = 0;  ///< when it came into the mailbox; 0: before the recording began
  std::int64_t begin_ns = 0, end_ns = 0;
  /// A method that is a coroutine runs in parts, each with an event: this one begins after a wait.
  bool is_resumed = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(call, actor, thread, name, made_ns, queued_ns, begin_ns, end_ns, is_resumed);
  }
};

/// What a process has recorded.
struct Timeline {
  std::vector<TimelineEvent> events;  ///< in the order in which they ended
  std::vector<std::string> names;
  std::map<std::uint64_t, std::string> actors;   ///< their names
  std::map<std::uint32_t, std::string> threads;  ///< their names
  bool has_all = true;                           ///< false: older events were overwritten
  template <class Archive>
  void fields(Archive& archive) {
    archive(events, names, actors, threads, has_all);
  }
};

/// Records the calls of a process while it is asked to: at other times a call costs one relaxed
/// load. It keeps the last `capacity` events. Callable from any thread.
class CallTimeline {
 public:
  static constexpr std::size_t capacity = std::size_t{1} << 15;

  /// Forgets what there is and records for `limit`, if it is not stopped before.
  void start(std::chrono::milliseconds limit);
  /// Ends the recording.
  void stop() { is_on_.store(false, std::memory_order_relaxed); }
  /// Ends the recording, and returns and forgets what there is.
  Timeline take();

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  /// Now, or 0 while nothing is recorded.
  std::int64_t time() const { return is_on() ? now() : 0; }

  void note_made(std::uint64_t call, std::string_view type);
  void note_run(std::uint64_t call, const ActorAddress& actor, std::string_view method,
                std::int64_t queued_ns, std::int64_t begin_ns, bool is_resumed = false);

  /// The calls that this thread makes from now on are made by this actor; 0: by none.
  static void set_caller(std::uint64_t actor);

 private:
  static std::int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  /// Takes the time as the event's end; mutex_ is held. False if the recording is over.
  bool is_in_time(std::int64_t time);
  void add(TimelineEvent event, const std::string& name);

  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;
  std::int64_t until_ns_ = 0;
  std::vector<TimelineEvent> ring_;
  std::size_t next_ = 0;  ///< where the next event goes once the ring is full
  bool has_all_ = true;
  std::map<std::string, std::uint32_t> names_;
  std::map<std::uint64_t, std::string> actors_;
};

}  // namespace troupe
