#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/call_observer.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/node/placement_group.hpp"
#include "runtime/node/resources.hpp"
#include "runtime/object/object_info.hpp"

namespace troupe {

/// What an observer asks a driver, and the answers. An observer sees the cluster's state and may
/// ask it to end, to let a node go or to take some in; it cannot act as an agent or call actors.

/// Changes whenever a message below does. Observer and driver may be of different builds, so each
/// message begins with it.
inline constexpr std::uint32_t state_protocol = 7;

/// The role and the name of every observer on its link to the driver.
inline constexpr const char* observer_role = "observer";
inline constexpr const char* observer_name = "state";

struct AskStatus {
  template <class Archive>
  void fields(Archive&) {}
};
/// What there may be many of is asked for in pages of at most so many. The driver can do nothing
/// else with its actors or nodes while it copies a page, so it is short: 0.3 ms.
inline constexpr std::uint32_t max_page = 256;
/// A page of the nodes, in the order of ClusterOptions::nodes.
struct AskNodes {
  std::uint64_t after = 0;  ///< nodes behind the first so many
  template <class Archive>
  void fields(Archive& archive) {
    archive(after);
  }
};
/// A page of the actors by id, and one of those that ended last.
struct AskActors {
  std::uint64_t after = 0;         ///< actors with a larger id
  std::uint32_t actors = 0;        ///< at most so many; never more than max_page
  std::uint64_t ended_before = 0;  ///< those that ended before this one; 0: the last ones
  std::uint32_t ended = 0;         ///< at most so many; never more than max_page
  template <class Archive>
  void fields(Archive& archive) {
    archive(after, actors, ended_before, ended);
  }
};
/// A page of the placement groups by id: so many that they have max_page bundles, or one larger
/// group.
struct AskGroups {
  std::uint64_t after = 0;  ///< groups with a larger id
  template <class Archive>
  void fields(Archive& archive) {
    archive(after);
  }
};
/// A piece of a log that the driver can read.
struct AskLog {
  std::string of;           ///< "driver", a node, or an actor's name or id
  std::int64_t offset = 0;  ///< of the first byte; below 0: counted from the end
  std::uint32_t bytes = 0;  ///< at most so many; never more than max_log_piece
  template <class Archive>
  void fields(Archive& archive) {
    archive(of, offset, bytes);
  }
};
inline constexpr std::uint32_t max_log_piece = 256 << 10;
/// The driver's process is to end, as if it got a SIGTERM.
struct AskStop {
  std::string from;  ///< who asks, for the log
  template <class Archive>
  void fields(Archive& archive) {
    archive(from);
  }
};
/// The driver's program is to let a node go (Cluster::on_drain).
struct AskDrain {
  std::string node;
  std::string from;  ///< who asks, for the log
  template <class Archive>
  void fields(Archive& archive) {
    archive(node, from);
  }
};
/// The driver's program is to take nodes in (Cluster::on_join).
struct AskJoin {
  std::vector<std::string> hosts;
  std::string from;                           ///< who asks, for the log
  std::string slurm_job = {};                 ///< the allocation of Slurm that this is asked from
  std::vector<std::string> slurm_nodes = {};  ///< of that
  template <class Archive>
  void fields(Archive& archive) {
    archive(hosts, from, slurm_job, slurm_nodes);
  }
};
/// The metrics of all processes, added.
struct AskMetrics {
  template <class Archive>
  void fields(Archive&) {}
};
/// The calls of all actors since they were made.
struct AskLoads {
  template <class Archive>
  void fields(Archive&) {}
};
/// The stacks of the threads of an actor's process.
struct AskStack {
  std::string of;  ///< an actor's name or id
  template <class Archive>
  void fields(Archive& archive) {
    archive(of);
  }
};
/// Calls are recorded: begin, end, and then take what each process has.
struct AskTimeline {
  enum class Step : std::uint8_t { start, stop, take };
  Step step = Step::start;
  std::int64_t limit_ms = 0;  ///< of start: it ends by itself then
  std::string node{};         ///< of take: a TimelinePlace's
  std::uint64_t process = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(step, limit_ms, node, process);
  }
};
/// A page of the objects by id, of all processes that answer.
struct AskObjects {
  ObjectId after;             ///< objects with larger ids
  std::uint32_t objects = 0;  ///< at most so many; never more than max_page
  template <class Archive>
  void fields(Archive& archive) {
    archive(after, objects);
  }
};
using StateRequest =
    std::variant<AskStatus, AskNodes, AskActors, AskGroups, AskLog, AskStop, AskDrain, AskJoin,
                 AskMetrics, AskLoads, AskStack, AskTimeline, AskObjects>;

/// True for what changes the cluster, and so may take seconds.
bool is_change(const StateRequest& request);

struct StatusReply {
  /// What the driver's program does about a SIGTERM.
  enum class AtSigterm : std::uint8_t { handles, dies, ignores };
  std::uint32_t nodes_alive = 0;
  std::uint32_t nodes_lost = 0;
  std::uint32_t nodes_awaited = 0;  ///< that have not come yet
  std::uint32_t nodes_drained = 0;
  std::uint64_t actors = 0;  ///< those that wait for a restart included
  std::uint64_t actors_restarting = 0;
  std::uint64_t placement_groups = 0;
  AtSigterm at_sigterm = AtSigterm::dies;
  std::string job_folder, log_folder;  ///< of the driver's host; may be empty
  std::string program_state;           ///< Cluster::tell_state
  template <class Archive>
  void fields(Archive& archive) {
    archive(nodes_alive, nodes_lost, nodes_awaited, nodes_drained, actors, actors_restarting,
            placement_groups, at_sigterm, job_folder, log_folder, program_state);
  }
};

struct NodeState {
  enum class Life : std::uint8_t { awaited, alive, lost, drained };
  std::string name;
  std::string host, address;  ///< empty until it has come
  Life life = Life::awaited;
  std::string lost_because;  ///< how its agent ended
  std::int32_t agent_pid = 0;
  Resources total, free;  ///< nothing is free on a node that is lost
  std::string log_path;   ///< of its agent, on the driver's host; empty: the driver knows none
  template <class Archive>
  void fields(Archive& archive) {
    archive(name, host, address, life, lost_because, agent_pid, total, free, log_path);
  }
};
struct NodesReply {
  std::vector<NodeState> nodes;
  bool is_last = true;  ///< page
  template <class Archive>
  void fields(Archive& archive) {
    archive(nodes, is_last);
  }
};

struct ActorState {
  enum class Life : std::uint8_t { starting, alive, restarting };
  std::uint64_t id = 0;
  std::string name, type;
  std::string node;  ///< "driver" for actors of the driver's process; empty between two places
  std::int32_t pid = 0;
  std::uint32_t restarts = 0;  ///< so far; this is also the number of its incarnation
  std::vector<std::int32_t> devices = {};
  Resources resources = {};  ///< that it holds
  Life life = Life::starting;
  std::string last_end = {};  ///< of the incarnation before, a sentence; empty for the first one
  std::uint64_t owner = 0;    ///< the actor that it ends with; 0: none
  std::string log_path = {};  ///< of the driver's host; empty: the driver knows none
  template <class Archive>
  void fields(Archive& archive) {
    archive(id, name, type, node, pid, restarts, devices, resources, life, last_end, owner,
            log_path);
  }
};
struct EndedActor {
  std::uint64_t id = 0;
  std::string name, type, node;
  std::int32_t pid = 0;
  std::uint32_t restarts = 0;
  std::int64_t ended_ms = 0;  ///< since 1970
  std::string cause;          ///< a DownCause: "stopped", "signal", ...
  std::int32_t code = 0;      ///< exit code or number of the signal, where the cause has one
  std::string message;        ///< one sentence for people
  std::string log_path;
  template <class Archive>
  void fields(Archive& archive) {
    archive(id, name, type, node, pid, restarts, ended_ms, cause, code, message, log_path);
  }
};
struct ActorsReply {
  std::vector<ActorState> actors;  ///< by id
  std::uint64_t all_actors = 0;    ///< on all pages, at this moment
  std::vector<EndedActor> ended;   ///< the latest first
  template <class Archive>
  void fields(Archive& archive) {
    archive(actors, all_actors, ended);
  }
};

struct GroupState {
  PlacementGroup group;
  std::vector<Resources> free;          ///< of each bundle, what no actor in it holds
  std::vector<std::uint64_t> actors{};  ///< in each bundle
  template <class Archive>
  void fields(Archive& archive) {
    archive(group, free, actors);
  }
};
struct GroupsReply {
  std::vector<GroupState> groups;  ///< by id, which is the order of their creation
  bool is_last = true;             ///< page
  template <class Archive>
  void fields(Archive& archive) {
    archive(groups, is_last);
  }
};

struct LogPiece {
  std::string path;          ///< on the driver's host
  std::string shared_with;   ///< the node whose processes all write there; empty: it is its own
  bool is_there = false;     ///< false: no such file (yet)
  std::uint64_t inode = 0;   ///< another one: another file has taken its place
  std::uint64_t offset = 0;  ///< of the first byte
  std::uint64_t size = 0;    ///< of the file
  Bytes bytes;
  template <class Archive>
  void fields(Archive& archive) {
    archive(path, shared_with, is_there, inode, offset, size, bytes);
  }
};

/// The signal is sent. A program that dies of it does so before it answers.
struct StopReply {
  template <class Archive>
  void fields(Archive&) {}
};

/// The answer to AskDrain and AskJoin.
struct ChangeReply {
  std::string told;  ///< what has been done, or is to be done, for people
  template <class Archive>
  void fields(Archive& archive) {
    archive(told);
  }
};

struct MetricsReply {
  std::string text;  ///< in Prometheus' format
  template <class Archive>
  void fields(Archive& archive) {
    archive(text);
  }
};
struct LoadsReply {
  std::vector<ActorLoadState> actors;  ///< by id; without those of processes that do not answer
  template <class Archive>
  void fields(Archive& archive) {
    archive(actors);
  }
};
struct StackReply {
  std::string actor{}, node{}, process{};
  std::int32_t pid = 0;
  std::string text{};
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, node, process, pid, text);
  }
};
/// A process that records calls.
struct TimelinePlace {
  std::string node;           ///< "driver" for the driver's process
  std::uint64_t process = 0;  ///< 0 for the driver's
  std::string name;
  std::int32_t pid = 0;
  std::int64_t ahead_ns = 0;  ///< what its host's clock is ahead of the driver's
  std::int64_t off_ns = 0;    ///< the most that this is off
  template <class Archive>
  void fields(Archive& archive) {
    archive(node, process, name, pid, ahead_ns, off_ns);
  }
};
struct TimelineReply {
  std::vector<TimelinePlace> places;  ///< to start
  Timeline timeline;                  ///< to take
  template <class Archive>
  void fields(Archive& archive) {
    archive(places, timeline);
  }
};
struct ObjectsReply {
  ObjectPage page;
  std::vector<std::string> silent;  ///< processes that have not answered
  template <class Archive>
  void fields(Archive& archive) {
    archive(page, silent);
  }
};

/// The request has no answer.
struct StateRefusal {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  template <class Archive>
  void fields(Archive& archive) {
    archive(code, message);
  }
};
using StateReply = std::variant<StatusReply, NodesReply, ActorsReply, GroupsReply, LogPiece,
                                StopReply, ChangeReply, StateRefusal, MetricsReply, LoadsReply,
                                StackReply, TimelineReply, ObjectsReply>;

Bytes encode_request(const StateRequest& request);
Bytes encode_reply(const StateReply& reply);
/// Errors: corrupt_data; unsupported for another protocol.
Result<StateRequest> decode_request(std::span<const std::byte> bytes);
Result<StateReply> decode_reply(std::span<const std::byte> bytes);

}  // namespace troupe
