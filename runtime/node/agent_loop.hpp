#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/control/control_plane.hpp"
#include "runtime/control/followers.hpp"
#include "runtime/node/agent_child.hpp"
#include "runtime/node/agent_inbox.hpp"
#include "runtime/node/agent_inquiries.hpp"
#include "runtime/node/cpu_pool.hpp"
#include "runtime/node/log_relay.hpp"
#include "runtime/node/node_ticket.hpp"
#include "runtime/node/oom_blame.hpp"
#include "runtime/node/regions.hpp"
#include "runtime/node/stack_reader.hpp"
#include "runtime/process/child_channel.hpp"
#include "runtime/process/child_starter.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {

/// What an agent process does once it has its ticket: joins the job, starts, watches, pings and
/// ends actor processes as the driver tells it, and passes on what they say. One thread, which is
/// never held for long: processes are started by another one. Not synchronised.
class AgentLoop {
 public:
  /// `stop` becomes readable when the agent is to end: `why` says what has happened then.
  AgentLoop(int stop, std::string why) : stop_(stop), why_stopped_(std::move(why)) {}
  /// Waits at most `patience` for the driver. Returns the exit code of the process.
  int run(const NodeTicket& ticket, std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  struct ProcessStart {
    ProcessId process = 0;
    ChildOptions options;
    UniqueFd end;  ///< of its channel
  };

  Result<void> join(const NodeTicket& ticket, std::chrono::milliseconds patience);
  bool is_stop_wanted() const;
  Result<AgentBootstrap> wait_for_bootstrap();
  /// Handles what the driver has sent, and looks after the children meanwhile: hundreds of messages
  /// may have come at once.
  void read_inbox();
  /// Waits for something to happen, if it may, and handles it, in time for what has happened: it
  /// does not look at each child.
  void poll_once(bool may_wait = true);
  void read_child_events();
  void on_driver_message(ControlMessage message);
  /// Forwards the child's messages; false if there were none.
  bool on_child_messages(ProcessId id, AgentChild& child);
  void on_child_message(ProcessId id, AgentChild& child, ChildChannel::Message message);
  void on_child_end(std::map<ProcessId, AgentChild>::iterator found);
  /// See ProcessEnded::out_of_memory, of a process that SIGKILL ended and not from here.
  std::string out_of_memory();
  void start_actor(StartActor message);
  Result<AgentChild*> start_process(const StartActor& message);
  /// Lets the starter begin with what waits, as long as few processes are between their start and
  /// their first message: those compete for the cores with this loop.
  void start_next();
  void on_process_started(ChildStarter::Started started);
  /// Chooses the CPUs that a process is bound to; none if it is not.
  std::vector<int> cpus_of(const StartActor& message);
  /// A control group for the process; null if it has no limit, or there can be none (logged).
  std::unique_ptr<MemoryLimit> memory_limit_of(const StartActor& message);
  /// The process is not there, and neither are its actors.
  void fail_start(ProcessId process, const Error& why);
  void suspend();
  void resume();
  void kill_all();
  void kill_children();
  void answer_region(ProcessId id, AgentChild& child, const RegionRequest& request);
  void refuse(AgentChild& child, const ControlMessage& message);
  void answer_key(AgentChild& child, std::uint64_t request, Result<Key> key);
  void tick();
  /// Reads what a process prints, for its log and for the driver.
  Result<void> relay_output(ProcessId process, ChildOptions& child, const std::string& name);
  /// See AskProcesses.
  void ask_processes(const AskProcesses& ask);
  void tell_survivor(ProcessId id, const AgentChild& child);

  const int stop_;
  const std::string why_stopped_;
  AgentBootstrap bootstrap_;  ///< without the secret
  std::optional<JobKeys> keys_;
  Inbox inbox_;
  std::unique_ptr<ControlClient> driver_;
  ChildStarter starter_;             ///< outlives its children
  UniqueFd child_events_;            ///< an epoll set: the messages and the ends of the children
  std::deque<ProcessStart> starts_;  ///< that wait
  std::map<ProcessId, AgentChild> children_;
  CpuPool cpus_{usable_cpus()};  ///< held by processes
  Followers<ProcessId> followers_;
  Regions regions_;
  OomBlame oom_blame_;
  /// What a process prints, if the driver wants it.
  struct Output {
    std::unique_ptr<LogRelay> relay;
    std::shared_ptr<std::atomic<int>> pid;
  };
  std::map<ProcessId, Output> outputs_;
  AgentInquiries inquiries_{[this](NodeReport report) { driver_->send(std::move(report)); }};
  StackReader stacks_{[this](NodeReport report) { driver_->send(std::move(report)); }};
  bool has_limited_memory_ = false;
  Clock::time_point next_tick_ = Clock::now();
  Clock::time_point polled_at_ = Clock::now();
  std::chrono::nanoseconds cpu_at_poll_{};
  /// Between two polls, from join to Shutdown: all of it, and what the thread computed in it. The
  /// rest it waited for a core, as nothing else makes it wait.
  std::chrono::nanoseconds longest_hold_{}, longest_work_{};
  std::string why_refused_;
  bool is_stopped_ = false;
  bool is_shutting_down_ = false;
  bool is_suspended_ = false;
};

}  // namespace troupe
