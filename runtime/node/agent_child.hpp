#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/lease.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/node/memory_limit.hpp"
#include "runtime/node/polled_fd.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {

/// An actor process of an agent: what it is told and says, and whether it still answers. Not
/// synchronised.
///
/// It is there before its process, which another thread starts: what it is sent until then waits in
/// the channel, and signals wait here.
class AgentChild {
 public:
  using Clock = Lease::Clock;

  /// `kill_limit`: see survives_kill().
  AgentChild(std::unique_ptr<ChildChannel> channel, std::string name, std::string call_name,
             std::chrono::milliseconds kill_limit);

  /// Its process is about to be started.
  void begin_start();
  /// True from then to its first message, or for as long as that usually takes.
  bool is_starting() { return usual_start_ && !was_heard_ && !usual_start_->is_over(); }
  /// Its process has been started.
  void set_process(ChildProcess process);

  const std::string& name() const { return name_; }
  const std::string& call_name() const { return call_name_; }
  /// Null until it has been started.
  ChildProcess* process() { return process_ ? &*process_ : nullptr; }
  int pid() const { return process_ ? process_->pid() : 0; }
  /// Has its messages and its end be events of an epoll set. Before its process is started.
  void begin_polling(int epoll, ProcessId process);
  struct Event {
    ProcessId process = 0;
    bool is_end = false;  ///< else call exchange()
  };
  /// What such an event says.
  static Event event_of(std::uint64_t tag) { return {tag / 2, tag % 2 != 0}; }
  /// It has ended and cannot be reaped yet: its end is no event until tend().
  void note_unreaped() { polled_end_.wait_for(0); }
  void kill();
  /// True if it was killed from here.
  bool is_killed() const { return is_killed_; }
  /// True once, if it was killed and has not ended within the limit. To be asked after tend().
  bool survives_kill();
  /// True if it was killed since it did not answer or read.
  bool is_unresponsive() const { return is_unresponsive_; }

  void send(const ControlMessage& message, UniqueFd attached = {});
  /// Sends what is queued and returns what it has said since; empty also if it is ending.
  std::vector<ChildChannel::Message> exchange();

  /// Pings it, or kills it if it was silent for too long, does not read or did not end in time.
  void tend();
  /// How long it may still be silent, so that tend() looks just then.
  Clock::duration silence_left();
  /// It stands still for at most so long, as a debugger reads it: its silence does not count.
  void excuse(std::chrono::milliseconds time) { excused_ = deadline_in(time); }
  /// Asks it to end; it is killed after `grace`.
  void stop(std::chrono::milliseconds grace);
  void suspend();
  void resume();

  /// It is to use at most so many bytes: by the group that it is in, or by tend() if that is null.
  void limit_memory(std::uint64_t bytes, std::unique_ptr<MemoryLimit> group);
  /// The file that counts such ends, once its group's limit has ended it; else empty.
  std::string memory_overrun() const;
  /// How far it was beyond the limit when tend() killed it; else empty.
  const std::string& memory_excess() const { return memory_excess_; }

  /// An actor is to be made in it. It may speak for no others.
  void add_actor(ActorId id, const std::string& name) { actors_.emplace(id, name); }
  /// Takes note of what it says: an actor that has ended or could not be made is not one of its own
  /// any more. False if the message is about an actor that is none.
  bool note_message(const ControlMessage& message);
  /// Returns the actor's name, or null if it is not one of its own.
  const std::string* find_actor(ActorId id) const;
  const std::map<ActorId, std::string>& actors() const { return actors_; }

 private:
  static std::uint64_t tag_of(const Event& event) { return event.process * 2 + event.is_end; }
  void poll_channel();
  void kill_since(std::string_view why);
  void look_at_memory();

  std::unique_ptr<MemoryLimit> memory_group_;  ///< outlives the process
  std::uint64_t memory_limit_ = 0;
  std::string memory_excess_;
  std::optional<ChildProcess> process_;
  bool is_killed_ = false, is_suspended_ = false;  ///< also before it is started
  std::unique_ptr<ChildChannel> channel_;
  const std::string name_, call_name_;
  Lease start_;    ///< from its start until its first message
  Lease silence_;  ///< after its first message; before that, if it is stopped
  std::optional<Deadline> usual_start_;
  std::optional<Deadline> kill_at_;
  std::optional<Deadline> excused_;
  const std::chrono::milliseconds kill_limit_;
  /// Set from its kill until it has ended, or is reported to survive.
  std::optional<Deadline> end_limit_;
  bool was_heard_ = false;
  bool is_unresponsive_ = false;
  bool is_channel_over_ = false;
  int epoll_ = -1;
  ProcessId id_ = 0;  ///< in the events
  PolledFd polled_channel_, polled_end_;
  std::map<ActorId, std::string> actors_;
};

}  // namespace troupe
