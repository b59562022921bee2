#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/security/job_secret.hpp"
#include "runtime/security/plane_keys.hpp"

namespace troupe {

/// Identifies one actor process of a job; never reused.
using ProcessId = std::uint64_t;

/// Supervision's messages along the driver - agent - actor process tree. Both edges share one
/// vocabulary; each comment says which way a message goes (D driver, A agent, P actor process).

/// Changes whenever a control message does.
inline constexpr std::uint32_t control_protocol = 15;

/// A -> D, first: the agent of the ticket for `node`, or one that joins by a token and has chosen
/// this name until it is given a node, has come. An agent of another build is refused.
struct AgentReady {
  std::uint32_t protocol = control_protocol;  ///< the first field in every version
  Key build{};                                ///< this_build()
  std::string node;
  std::int32_t pid = 0;
  std::string host;                ///< the machine's name
  std::string address;             ///< numeric; where other hosts of the job reach this one
  std::vector<std::int32_t> cpus;  ///< ids of those that the agent may use
  std::uint64_t memory_bytes = 0;  ///< available to the agent
  template <class Archive>
  void fields(Archive& archive) {
    archive(protocol, build, node, pid, host, address, cpus, memory_bytes);
  }
};
/// D -> A -> P: makes an actor, in a new process if `starts_process`. A process that has ended is
/// not started again under its id: an actor that arrives too late for it is refused.
struct StartActor {
  ProcessId process = 0;
  bool starts_process = false;
  std::string process_name;
  ActorAddress actor;  ///< without endpoint
  Bytes arguments;     ///< its construction arguments, encoded
  std::vector<std::int32_t> devices;
  bool hides_other_devices = false;  ///< the process that it starts sees only `devices`
  bool dedicated_thread = false;
  std::int32_t bound_cpus = 0;  ///< the process that it starts is bound to so many CPUs; 0: to none
  std::int32_t max_concurrency = 0;  ///< see SpawnOptions
  std::int64_t memory_limit = 0;     ///< of the process that it starts, in bytes; 0: none
  template <class Archive>
  void fields(Archive& archive) {
    archive(process, starts_process, process_name, actor, arguments, devices, hides_other_devices,
            dedicated_thread, bound_cpus, max_concurrency, memory_limit);
  }
};
/// P -> A -> D.
struct ActorStarted {
  ActorId actor = 0;
  std::string endpoint;
  std::int32_t pid = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, endpoint, pid);
  }
};
/// P -> A -> D, or A -> D if the process could not be started: the actor was not made.
struct ActorFailed {
  ActorId actor = 0;
  ErrorCode code = ErrorCode::internal;
  std::string message;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, code, message);
  }
};
/// P -> A -> D: an actor of the process, the owner, spawns another one. `options` is an encoded
/// SpawnOptions.
struct SpawnRequest {
  std::uint64_t request = 0;
  ProcessId process = 0;  ///< set by A
  ActorId owner = 0;
  Bytes options;  ///< and the objects among the arguments that the driver is to keep
  std::string type;
  Bytes arguments;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, process, owner, options, type, arguments);
  }
};
/// D -> A -> P.
struct SpawnReply {
  std::uint64_t request = 0;
  ProcessId process = 0;
  bool ok = false;
  ActorAddress actor = {};
  ErrorCode code = ErrorCode::internal;
  std::string message = {};
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, process, ok, actor, code, message);
  }
};
/// P -> A -> D: an actor of the process ends one that it has spawned.
struct StopOwned {
  ActorId owner = 0;
  ActorId actor = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(owner, actor);
  }
};
/// D -> A -> P: the actor finishes its method and ends.
struct StopActor {
  ProcessId process = 0;
  ActorId actor = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(process, actor);
  }
};
/// P -> A -> D: the actor has ended, because it was asked to or (`exited`) by itself.
struct ActorEnded {
  ActorId actor = 0;
  bool exited = false;
  std::string reason;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, exited, reason);
  }
};
/// D -> A -> P: ends the process: with `kill` at once by SIGKILL (sent by A), else in order, and by
/// force after a second.
struct StopProcess {
  ProcessId process = 0;
  bool kill = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(process, kill);
  }
};
/// A -> D: the process has ended and is reaped, or could not be started.
struct ProcessEnded {
  ProcessId process = 0;
  std::int32_t pid = 0;  ///< 0: it could not be started
  bool signalled = false;
  bool unresponsive = false;  ///< the agent killed it because it no longer answered
  std::int32_t code = 0;
  /// It was killed by the kernel, as memory had run out: the file that counts such ends. Else
  /// empty.
  std::string out_of_memory{};
  /// The agent killed it, as it used so much more than its limit. Else empty.
  std::string memory_excess{};
  /// It was killed, and has not ended in AgentBootstrap::kill_limit_ms: its state
  /// (describe_process_state). Its end is reported again when it comes. Else empty.
  std::string survives{};
  template <class Archive>
  void fields(Archive& archive) {
    archive(process, pid, signalled, unresponsive, code, out_of_memory, memory_excess, survives);
  }
};
/// P -> A -> D: the process calls or watches this actor, and is to hear of its end (ActorGone), at
/// once if it has ended. With `wants_address` also, at once, where it is (ActorMoved).
struct FollowActor {
  ActorId actor = 0;
  bool wants_address = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, wants_address);
  }
};
/// D -> A -> P, to those that follow it: an actor is gone, for good unless it `restarts`; `down` is
/// an encoded ActorDown.
struct ActorGone {
  ActorId actor = 0;
  bool restarts = false;
  Bytes down;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, restarts, down);
  }
};
/// D -> A -> P, to those that follow it: where this incarnation of the actor is.
struct ActorMoved {
  ActorAddress actor;
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor);
  }
};
/// D -> A -> P, to all: the agent of a node of another host is lost, and its processes with it.
struct NodeGone {
  std::string locality;  ///< of its processes; see NetworkAddress
  std::string how;
  template <class Archive>
  void fields(Archive& archive) {
    archive(locality, how);
  }
};
/// D -> A: end all processes and yourself within this time.
struct Shutdown {
  std::int64_t timeout_ms = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(timeout_ms);
  }
};
/// A -> P, first.
struct ProcessBootstrap {
  std::string call_name;  ///< of the process, on the call plane
  SecretKey call_key;     ///< its call_listener_key()
  std::string locality;   ///< of the node; see NetworkAddress
  std::string address;    ///< numeric, of the node; empty: no other host takes part
  PortRange ports;        ///< for listeners that other hosts reach
  ProcessId process = 0;
  std::string process_name;
  std::string node;
  std::string job_folder;
  std::string log_path;
  std::int32_t log_level = 0;
  ActorAddress directory;  ///< the driver's Directory actor
  std::uint64_t credits = 0;
  std::uint64_t credit_bytes = 0;
  std::int64_t credit_timeout_ms = 0;
  std::int64_t cause_grace_ms = 0;
  std::uint64_t object_store_bytes = 0;
  std::string object_spill_folder;
  template <class Archive>
  void fields(Archive& archive) {
    archive(call_name, call_key, locality, address, ports, process, process_name, node, job_folder,
            log_path, log_level, directory, credits, credit_bytes, credit_timeout_ms,
            cause_grace_ms, object_store_bytes, object_spill_folder);
  }
};
/// D -> A, last: the agent is not let in, or has been looked at and cannot take part.
struct AgentRefused {
  std::string why;
  template <class Archive>
  void fields(Archive& archive) {
    archive(why);
  }
};
/// D -> A, first: the agent is let in.
struct AgentBootstrap {
  SecretKey secret;  ///< the job's
  std::string job_id;
  ProcessBootstrap processes;      ///< template for its actor processes
  std::string log_folder;          ///< of the node; empty: everything goes to the agent's stderr
  std::int64_t kill_limit_ms = 0;  ///< ClusterOptions::kill_limit
  bool forward_logs = false;       ///< ClusterOptions::forward_logs
  template <class Archive>
  void fields(Archive& archive) {
    archive(secret, job_id, processes, log_folder, kill_limit_ms, forward_logs);
  }
};
/// P -> A: asks, for one of the process's actors, for the key of these channels (channel_key()).
struct KeyRequest {
  std::uint64_t request = 0;
  ActorId actor = 0;
  ChannelScope scope;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, actor, scope);
  }
};
/// P -> A: asks for the process's key to connect to `listener` with (call_pair_key()).
struct CallKeyRequest {
  std::uint64_t request = 0;
  std::string listener;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, listener);
  }
};
/// A -> P: answers either request.
struct KeyReply {
  std::uint64_t request = 0;
  bool ok = false;
  SecretKey key;
  ErrorCode code = ErrorCode::internal;
  std::string message;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, ok, key, code, message);
  }
};
/// D -> A: the driver is about to stop (Ctrl-Z): stop your processes until Resume, and do not count
/// silence as death meanwhile. Answered by Suspended.
struct Suspend {
  template <class Archive>
  void fields(Archive&) {}
};
/// A -> D: answers Suspend once it is done.
struct Suspended {
  template <class Archive>
  void fields(Archive&) {}
};
/// D -> A: continue the processes.
struct Resume {
  template <class Archive>
  void fields(Archive&) {}
};
/// D -> A and A -> P every heartbeat_interval, and back at once: the sender is alive.
struct Heartbeat {
  template <class Archive>
  void fields(Archive&) {}
};
/// P -> A: asks for the region `name`, or, with `release`, forgets all whose names start with it.
struct RegionRequest {
  std::uint64_t request = 0;
  std::string name;
  std::uint64_t bytes = 0;
  bool release = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, name, bytes, release);
  }
};
/// A -> P: carries the region's descriptor, or an error.
struct RegionReply {
  std::uint64_t request = 0;
  bool ok = false;
  ErrorCode code = ErrorCode::internal;
  std::string message;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, ok, code, message);
  }
};

/// What a process is asked for beside its work.
enum class Inquiry : std::uint8_t {
  clock,           ///< of the agent alone
  metrics,         ///< an encoded ProcessMetrics
  loads,           ///< an encoded list of ActorLoadState
  start_timeline,  ///< records its calls, for at most `record_ms`
  stop_timeline,   ///< ends that
  take_timeline,   ///< an encoded Timeline
  stack,           ///< a text with the stacks of its threads; by the agent, of one process
  objects,         ///< an encoded ObjectPage, of the objects that it owns
};
/// D -> A, for one process of the node or all; then A -> P, to each.
struct AskProcesses {
  std::uint64_t request = 0;
  Inquiry what = Inquiry::clock;
  ProcessId process = 0;       ///< 0: all
  std::int64_t limit_ms = 0;   ///< answers that come later are left out
  std::int64_t record_ms = 0;  ///< of start_timeline
  /// Of objects: at most so many, with larger ids than (after_owner, after_number).
  std::uint32_t most = 0;
  std::uint64_t after_owner = 0, after_number = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, what, process, limit_ms, record_ms, most, after_owner, after_number);
  }
};
/// P -> A: the answer of one process.
struct ProcessReport {
  std::uint64_t request = 0;
  ProcessId process = 0;  ///< set by A, as the next two
  std::int32_t pid = 0;
  std::string name{};
  Bytes bytes{};
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, process, pid, name, bytes);
  }
};
/// A -> D: the answers of a node's processes.
struct NodeReport {
  std::uint64_t request = 0;
  std::int64_t clock_ns = 0;  ///< the agent's steady clock when it was asked
  std::vector<ProcessReport> processes{};
  std::vector<std::string> silent{};  ///< processes that have not answered
  std::string problem{};              ///< why there is no answer at all; else empty
  template <class Archive>
  void fields(Archive& archive) {
    archive(request, clock_ns, processes, silent, problem);
  }
};
/// A -> D: whole lines that a process has printed, if the driver wants them
/// (AgentBootstrap::forward_logs).
struct LogLines {
  std::string process = {};  ///< its name
  std::int32_t pid = 0;
  std::string lines;
  std::uint64_t dropped = 0;  ///< lines left out before these
  template <class Archive>
  void fields(Archive& archive) {
    archive(process, pid, lines, dropped);
  }
};

using ControlMessage =
    std::variant<AgentReady, StartActor, ActorStarted, ActorFailed, StopActor, ActorEnded,
                 StopProcess, ProcessEnded, FollowActor, ActorGone, Shutdown, ProcessBootstrap,
                 Heartbeat, RegionRequest, RegionReply, KeyRequest, CallKeyRequest, KeyReply,
                 Suspend, Suspended, Resume, AgentBootstrap, AgentRefused, ActorMoved, SpawnRequest,
                 SpawnReply, StopOwned, AskProcesses, ProcessReport, NodeReport, LogLines,
                 NodeGone>;

/// Sender and receiver.
enum class ControlEdge { agent_to_driver, driver_to_agent, process_to_agent, agent_to_process };
/// True for the messages that travel on this edge: an actor process cannot speak as an agent, nor
/// an agent as the driver.
bool travels_on(ControlEdge edge, const ControlMessage& message);

Bytes encode_message(const ControlMessage& message);
/// Reads a message that came in on `edge`. Errors: corrupt_data, unsupported for an AgentReady of
/// another protocol, permission_denied for a message that does not travel there.
Result<ControlMessage> decode_message(std::span<const std::byte> bytes, ControlEdge edge);

}  // namespace troupe
