#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/actor_types.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/future.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/node/node_starter.hpp"
#include "runtime/node/placement_group.hpp"
#include "runtime/node/resources.hpp"
#include "runtime/object/object_access.hpp"
#include "runtime/task/submit.hpp"

namespace troupe {

/// Call first in main. Agents and actor processes are this same program executed again: in them,
/// init does their work and never returns. In the driver it returns at once. Raises the limit of
/// open files of the process (raise_open_file_limit). Actor classes that the program spawns need
/// not be in `types`: they register themselves.
void init(int argc, char** argv, const ActorTypes& types = {});

/// Where agents that somebody else has started join a job.
struct JoinPoint {
  SecretKey token;         ///< they must hold it, too (read_join_token)
  std::uint16_t port = 0;  ///< 0: the kernel's choice
};

/// The agents of a job that starts.
struct ClusterWait {
  std::vector<std::string> came;     ///< names of their nodes
  std::vector<std::string> refused;  ///< by ClusterOptions::judge, so far: "NAME: why"
  std::size_t expected = 0;
  std::uint16_t port = 0;  ///< where they come to
  ProgramCopies copies;    ///< on their way to hosts without the program
  /// Cluster::suspend and resume, for the agents that have come and those that come meanwhile.
  std::function<void()> suspend{}, resume{};
};

/// Nodes that the user wants to be taken into a running cluster.
struct JoinRequest {
  std::vector<std::string> hosts;
  std::string slurm_job;                 ///< the allocation of Slurm that the user asks from
  std::vector<std::string> slurm_nodes;  ///< of that
};

class Cluster;

/// A node that has joined, while others are awaited.
struct JoinedNode {
  std::size_t index = 0;      ///< in ClusterOptions::nodes
  std::uint64_t arrival = 0;  ///< another one for each agent, which may take the same place later
  std::string name;
  std::string address;  ///< numeric
};

/// The decision of ClusterOptions::judge about a node that has joined.
struct NodeVerdict {
  enum class Kind { pending, welcome, refused };
  Kind kind = Kind::welcome;
  std::string why{};  ///< it is refused
};

struct ClusterOptions {
  std::string name{};  ///< for people, in what `troupe` shows; empty: the program's
  /// The namespace of actors' names that counts where no other one is asked for. Its actors are
  /// shown by their names alone, those of other namespaces as "NAMESPACE/NAME".
  std::string name_space{};
  /// Empty: one node "node0" with the cpus of usable_cpus(). Those that join later are behind the
  /// others.
  std::vector<NodeSpec> nodes{};
  std::shared_ptr<NodeStarter> starter{};  ///< empty: a LocalNodeStarter
  /// If given, agents come by themselves; `starter` is not used. They fill `nodes` as they come,
  /// which get the names of their hosts, with a number behind a name that is taken.
  std::optional<JoinPoint> join{};
  /// If given, each node that joins is judged before it counts: called on the thread of
  /// Cluster::start, every 10 ms while the verdict is pending, with the cluster, on which actors
  /// can be started on nodes that have joined. A refused agent is told why and ends, and so do its
  /// actors; another one may take its place.
  std::function<NodeVerdict(Cluster& cluster, const JoinedNode& node)> judge{};
  /// The same for nodes that come in place of lost ones, once all have come: one that is started
  /// again, or joins. Called on a thread of the cluster's; it may take its time, but must return
  /// soon once shutdown() has begun. Until it is welcome the node takes only actors that name it.
  std::function<NodeVerdict(Cluster& cluster, const JoinedNode& node)> judge_replacement{};
  /// The ports at which this process and all others of the job listen for other hosts.
  PortRange ports{};
  /// Called every 100 ms while agents are awaited, and when all have come; false gives up
  /// (`cancelled`).
  std::function<bool(const ClusterWait&)> while_waiting{};
  /// The numeric address of this process at which nodes of other hosts reach it. Must be given for
  /// a starter of such and for nodes that join, and is then listened at.
  std::string address{};
  /// The numeric address of this process at which observers of other hosts reach it, as from a
  /// login node; for a cluster whose nodes are all on this machine. Agents come there, too. Empty:
  /// `address`.
  std::string observer_address{};
  std::string job_folder{};  ///< passed to the actors; may be empty
  std::string log_folder{};  ///< log_folder/PROCESS.log; empty: all to stderr
  log::Level log_level = log::Level::info;
  /// What actors with a process of their own, or one that they share, print to stdout and stderr
  /// appears on the stderr of this process, too: "(NAME pid=7, node1) the line". A line that many
  /// print, or one again and again, appears once and then, within 5 s, with a count. At most 1,000
  /// lines a second of each process; others are counted. The logs have all lines, as always.
  bool forward_logs = false;
  PlacementStrategy placement = PlacementStrategy::pack;  ///< for actors that name no node
  std::chrono::milliseconds start_timeout{10000};         ///< limit for all agents to report
  CallHub::Options calls{};
  TaskLimits tasks{};
  /// All runs in this process, for tests and debuggers: nodes are pretended, and spawned actors and
  /// tasks have threads of it. Arguments and answers are encoded as between processes, and order,
  /// errors, placement, stop, watch and restarts are the same. kill() ends the actors of a process
  /// alone: a method that runs goes on to its end, and its answer is lost. There is no child
  /// process, no socket and no port; `troupe` does not find it; nodes do not come and go; nobody is
  /// bound to CPUs or held to memory, and CUDA_VISIBLE_DEVICES is not set. Actors run on the shared
  /// pool of threads unless they ask for a dedicated one. `starter`, `join` and `address` must not
  /// be given.
  bool in_process = false;
  /// How long an actor's process that was killed may take to end. One that waits in the kernel, as
  /// for a file server or a GPU's driver that does not answer, counts as lost then: what it holds
  /// stays reserved until it has ended, and the bundle that it was in is lost as with its node.
  std::chrono::milliseconds kill_limit{30000};
  /// The user who runs this program may ask for the state of the cluster and end it, with the
  /// program `troupe`: it is found by a file (ClusterFile) and reached where agents come to. A file
  /// that cannot be written is a warning in the log.
  bool is_observable = true;
  std::string state_folder{};  ///< for that file; empty: cluster_folder()
  /// Memory of each node for large objects (Cluster::put), and of the driver's process; 0: 30 % of
  /// what its first object finds available. Objects that nobody has mapped are spilled beyond it.
  std::uint64_t object_store_bytes = 0;
  /// On each host, for spilled objects: nameless files, which end with their process. Empty:
  /// `job_folder`; if that is empty too, nothing is spilled.
  std::string object_spill_folder{};
};

struct SpawnOptions {
  std::string name{};     ///< unique in its namespace among living actors; empty: made from type
                          ///< and id, not findable
  Resources resources{};  ///< reserved until the actor is gone
  std::string node{};     ///< empty: chosen by placement
  /// If given (PlacementGroup::bundle), the resources are taken out of this bundle, and its node is
  /// the actor's.
  std::optional<BundleId> bundle{};
  std::string
      process{};  ///< empty: a process of its own; the same label shares a process on that node
  /// The process of an actor with devices, if it is its own, sees no others: the agent sets
  /// CUDA_VISIBLE_DEVICES, and CUDA counts the actor's devices from 0. Otherwise it sees what the
  /// agent sees, and ActorContext::device_ids are ordinals there.
  bool hides_other_devices = true;
  /// The process of the actor, which must be its own, runs on as many CPUs as `resources` has cpus,
  /// at least one, and no other actor that is bound does. The agent chooses them among its own, the
  /// ones near the actor's GPUs first (see cpus_near_gpus), and the threads of the process have
  /// them from the first on. Nothing is bound, with a warning in the log, on a node that counts
  /// more cpus than its agent may use or that shares CPUs with another node of the job. Actors that
  /// do not ask for it run on all CPUs of their agent.
  bool binds_cpus = false;
  /// The process of the actor, which must be its own, gets no more memory than
  /// `resources.memory_bytes`: what goes beyond ends it, as ActorDown tells. A memory control group
  /// sees to that, below the one that the agent is in; where none can be made, which is a warning
  /// in the agent's log, the agent looks at the memory five times a second, and kills.
  bool limits_memory = false;
  /// How often the actor is started again, with the same arguments, id and name, after its process
  /// or its node was lost: on `node`, or where placement chooses; -1: always. Calls under way then
  /// fail, later ones wait for the next incarnation. Its watchers are told of each end.
  int max_restarts = 0;
  /// It is also started again after it has called ActorContext::exit.
  bool restarts_after_exit = false;
  /// Spawned by an actor, it does not end with that one but with the cluster.
  bool is_detached = false;
  /// All methods run on one thread, which is the actor's alone (and is named after it), as those of
  /// an actor with a process of its own do. Otherwise actors that share a process share a
  /// TaskPool. For what belongs to a thread: thread-local state, its CPUs or priority, child
  /// processes that end with it.
  bool dedicated_thread = false;
  /// The default of CallOptions::max_retries for calls to this actor; -1: always. Only for methods
  /// that may run twice: they run once while the actor lives, but after a restart a call is run
  /// again that the last incarnation may have run.
  int max_call_retries = 0;
  /// So many calls of the actor are under way at most; 0: 1, or 1,000 for a class with coroutines
  /// (Async, Stream), all of whose methods run one at a time, on one thread at a time. More than 1
  /// for a class without coroutines: so many of its methods run at the same time, each on a thread
  /// of the process's pool, and the class guards what they share. Calls begin in the order in which
  /// they come. Methods in a concurrency group (ConcurrencyGroups) have its limit in place of this.
  int max_concurrency = 0;
  /// The namespace in which the name is unique; empty: the cluster's own
  /// (ClusterOptions::name_space). Actors of one name in different namespaces are different actors.
  /// It means nothing without a name.
  std::string name_space{};

  template <class Archive>
  void fields(Archive& archive) {
    archive(name, resources, node, bundle, process, hides_other_devices, binds_cpus, max_restarts,
            restarts_after_exit, is_detached, dedicated_thread, max_call_retries, max_concurrency,
            limits_memory, name_space);
  }
};

/// The driver's side of a job: starts one agent per node, and actors on them. All functions are
/// callable from any thread; none but start, stop and shutdown blocks.
///
/// However this process ends, agents and actors end with it at once; if only this process is
/// stopped, they end within 2.5 s. Children ignore SIGINT (Ctrl-C on the terminal reaches the
/// driver alone).
class Cluster : public ObjectAccess {
 public:
  /// Starts the agents and waits until all have reported. Errors name the node; invalid_argument if
  /// troupe::init has not been called, or if two actor classes share a name.
  static Result<std::unique_ptr<Cluster>> start(ClusterOptions options);
  virtual ~Cluster() = default;  ///< shuts down

  /// Starts an actor of class A with the given construction arguments. The future has the handle
  /// once the actor is constructed, or an error: the actor's own, resource_exhausted with what was
  /// asked for and what is left, unschedulable if no node could ever have so much, already_exists
  /// for a taken name, the death of its process, invalid_argument for arguments of more than 255
  /// MiB; for a bundle not_found if its group has been removed, peer_died if it is lost with its
  /// node.
  ///
  /// An actor with a process of its own has one thread. Actors that share a process
  /// (SpawnOptions::process, spawn_local) share a pool of threads (TaskPool), one for each CPU and
  /// at least two: an actor without calls costs memory only, about 1 KiB, and its methods run one
  /// at a time, on whichever thread is free. A method may block: in a wait of the runtime (futures,
  /// credits, shared memory) another thread takes its place at once; in any other after 10 to 20 ms
  /// in which actors queue for a thread; and if it computes, after about a second. So what a method
  /// that blocks costs is a thread: about 10 KiB, and 40 us if it must be started. A process has at
  /// most 4,096 of them. While all of these block, what is due waits for the first that comes back,
  /// so actors that wait for it get timeouts.
  template <class A, class... Args>
  Future<ActorHandle<A>> spawn(const SpawnOptions& options, Args&&... args) {
    actor_detail::register_class<A>();
    const ConstructionArguments<A> arguments(std::forward<Args>(args)...);
    return typed<A>([&](AddressCallback done) {
      spawn_remote(options, std::string(actor_type_of<A>()), encode_arguments(arguments),
                   std::move(done));
    });
  }

  /// The same in this process; `options` may give only the name, its namespace, dedicated_thread
  /// and max_concurrency. The arguments are passed as they are and need not be encodable; A is not
  /// registered.
  template <class A, class... Args>
  Future<ActorHandle<A>> spawn_local(const SpawnOptions& options, Args&&... args) {
    auto arguments =
        std::make_shared<std::tuple<std::decay_t<Args>...>>(std::forward<Args>(args)...);
    auto make = [arguments](ActorContext& context) -> Result<std::unique_ptr<ActorObject>> {
      TROUPE_TRY(auto actor, std::apply(
                                 [&](auto&... values) {
                                   return actor_detail::make_actor<A>(context,
                                                                      std::move(values)...);
                                 },
                                 *arguments));
      return std::unique_ptr<ActorObject>(
          std::make_unique<actor_detail::TypedActor<A>>(std::move(actor)));
    };
    return typed<A>([&](AddressCallback done) {
      spawn_here(options, std::string(actor_type_of<A>()), std::move(make), std::move(done));
    });
  }

  /// Returns the living actor of that name in a namespace; empty: the cluster's own. Errors:
  /// not_found, which tells the namespaces that have the name; invalid_argument if it is of another
  /// type.
  template <class A>
  Result<ActorHandle<A>> find(std::string_view name, std::string_view name_space = {}) {
    TROUPE_TRY(auto address, find_address(name, name_space, actor_type_of<A>()));
    return ActorHandle<A>(std::move(address), hub());
  }

  /// See ActorContext::watch.
  virtual WatchToken watch(const ActorAddress& actor, DownCallback callback) = 0;
  template <class A>
  WatchToken watch(const ActorHandle<A>& actor, DownCallback callback) {
    return watch(actor.address(), std::move(callback));
  }

  /// Runs a plain function in a worker process on some node: `submit<&count_words>({}, text)`. It
  /// may take ActorContext& first, which is the worker's: what it spawns ends with the worker
  /// unless it is detached. Arguments and answer are encodable (runtime/call/codec.hpp). Workers
  /// are started when there is work for them, as many on a node as it has cpus, and kept warm; a
  /// task runs where its resources are free, in no certain order. Waits while there are more tasks
  /// than `ClusterOptions::tasks` allows.
  ///
  /// Errors come through the future: the function's own; exception with type and text;
  /// unschedulable if no node has the resources; actor_died with the cause, if its process died in
  /// each try; timed_out; resource_exhausted beyond the limits; cancelled by the shutdown.
  ///
  /// Future::cancel ends the future with `cancelled`, at once: a task that has not begun never
  /// runs; one that runs goes on, and its ActorContext says so (is_cancelled), as after the
  /// timeout.
  template <auto function, class... Args>
  auto submit(const TaskOptions& options, Args&&... args) {
    return task_detail::submit<function>(hub(), options, task_sender(),
                                         std::forward<Args>(args)...);
  }
  /// The same, but the answer becomes an object (ObjectRef<R>), which is returned at once and may
  /// be passed to other tasks and actors before it is there: they wait in `get`, and read it where
  /// it was computed. This process owns it. Up to 100 KiB it is kept here; a larger one stays in
  /// the worker's process, which is not ended as long as it has some, unless it holds devices or
  /// the value has references in it.
  ///
  /// If the process that has the object dies, the task is run again, at most max_retries times; its
  /// arguments are kept for that as long as the object is. Objects among them that are lost are
  /// computed again, too. get returns the errors of submit, and object_lost with the cause when no
  /// retry is left, or this process has ended. ObjectAccess::cancel cancels the task.
  template <auto function, class... Args>
  auto submit_object(const TaskOptions& options, Args&&... args) {
    return task_detail::submit_object<function>(objects(), hub(), options, task_sender(),
                                                std::forward<Args>(args)...);
  }

  /// Lets the actor finish its current method, ends it, and waits until it is gone. If it is not
  /// gone after `timeout`, the error is timed_out and its process is killed, unless others are in
  /// it: `kill` ends them all. Calls in its mailbox fail with actor_died. Ok if it is gone already.
  virtual Result<void> stop(const ActorAddress& actor, std::chrono::milliseconds timeout) = 0;
  template <class A>
  Result<void> stop(const ActorHandle<A>& actor,
                    std::chrono::milliseconds timeout = std::chrono::seconds(2)) {
    return stop(actor.address(), timeout);
  }

  /// Kills the actor's process (SIGKILL) at once. Its death is reported like any other, and the
  /// actor restarted if it may be. not_found if it is not there at the moment.
  virtual Result<void> kill(const ActorAddress& actor) = 0;
  template <class A>
  Result<void> kill(const ActorHandle<A>& actor) {
    return kill(actor.address());
  }

  /// Reserves bundles of resources on the nodes, all or none, for actors that are spawned into them
  /// later (SpawnOptions::bundle). Decides at once and waits for nothing: what is not free now is
  /// refused. A bundle is lost with its node, and placed again only in a group that moves. Errors:
  /// resource_exhausted says for each bundle what each node lacks and who holds it, and so does
  /// unschedulable if they would not fit with nothing held and all nodes there; already_exists
  /// for a taken name; invalid_argument for no bundles, or one that asks for nothing.
  virtual Result<PlacementGroup> create_placement_group(const PlacementGroupOptions& options) = 0;
  /// Places the lost bundles of a group that moves on nodes with room, all or none, and lets the
  /// actors in them that wait for it start again. Returns where the bundles are now. Does nothing
  /// if none is lost. Errors: not_found for a group that is not there or does not move;
  /// resource_exhausted as create_placement_group; cancelled during shutdown.
  virtual Result<PlacementGroup> place_again(PlacementGroupId id) = 0;
  /// Makes the starter start the agents of lost nodes again, and returns at once. A node whose
  /// agent comes is there again, under its name. Agents that join by themselves may take the places
  /// of lost ones at any time.
  virtual void start_lost_nodes() = 0;
  /// The agents that have been refused since all nodes had come, each once, as "NAME: why"; the
  /// first 10,000.
  virtual std::vector<std::string> refused_nodes() const = 0;
  /// Kills the actors in the group, as `kill` does, and returns at once. Each bundle's resources
  /// are free again once its actors have ended: at once if there are none. not_found if it has been
  /// removed already.
  virtual Result<void> remove_placement_group(PlacementGroupId id) = 0;
  /// The groups that have not been removed, in the order of their creation.
  virtual std::vector<PlacementGroup> placement_groups() const = 0;

  /// One living actor, for reports and tests.
  struct ActorInfo {
    ActorAddress address;
    std::string node;  ///< "driver" for local actors
    int pid = 0;
    std::vector<int> devices;
    std::string log_path;
  };
  virtual std::vector<ActorInfo> actors() const = 0;

  /// One node and its agent. `alive` is false once the agent has died or fallen silent.
  struct NodeInfo {
    NodeSpec spec;
    std::string host;     ///< its machine's name
    std::string address;  ///< numeric; where other hosts reach it
    int agent_pid = 0;
    bool alive = true;
    /// How the agent ended ("was killed by signal 9 (SIGKILL)"); empty while it lives or is
    /// awaited.
    std::string lost_because{};
    bool was_drained = false;  ///< it is not there, since it was let go (dismiss_node)
    /// When its agent connected at last; the clock's epoch if none has come.
    std::chrono::steady_clock::time_point came_at{};
  };
  virtual std::vector<NodeInfo> nodes() const = 0;

  /// The node takes no more actors but those that name it, and no bundles. not_found for an unknown
  /// name.
  virtual Result<void> close_node(const std::string& node) = 0;
  /// Ends the agent of a node, in order, and with it what is left there, and returns at once. The
  /// node is lost then (NodeInfo::was_drained); start_lost_nodes() does not start it again, but an
  /// agent may join in its place. Errors: not_found for an unknown name, peer_died if it is not
  /// there.
  virtual Result<void> dismiss_node(const std::string& node) = 0;
  /// Lets a node go, and says for people what has become of what was there. Errors say why not.
  using DrainNode = std::function<Result<std::string>(const std::string& node)>;
  /// What is to be done when the user asks for that (`troupe drain`): called on a thread for such
  /// changes, one at a time. shutdown() waits for it, so it must return soon once that has begun.
  /// Without it such requests are refused.
  virtual void on_drain(DrainNode drain) = 0;
  /// Begins to start an agent as the node of that name: in place of the lost node of that name or,
  /// if there is none, of a drained one, in a place for nodes that join later
  /// (NodeSpec::joins_later), or of another lost one, which has this name from now on; the starter
  /// must know it. Like one that is started again, it may be judged before it counts. Errors:
  /// already_exists if that node is there; resource_exhausted if there is no such place;
  /// unsupported where agents join by themselves.
  virtual Result<void> start_node(const std::string& node) = 0;
  /// Takes nodes in, and says for people what has been done, or how they come.
  using JoinHosts = std::function<Result<std::string>(const JoinRequest& request)>;
  /// The same as on_drain for `troupe join`.
  virtual void on_join(JoinHosts join) = 0;

  /// What `troupe status` says of the program beside its nodes and actors, in a few words: "1 of 2
  /// step domains serve". Empty: nothing, as at first. Any thread.
  virtual void tell_state(std::string state) = 0;

  /// The metrics of this process, in which the driver makes its own (MetricsRegistry).
  virtual MetricsRegistry& metrics() const = 0;
  /// The sum of the metrics of all processes of the cluster, the runtime's (troupe_*) and those
  /// that actors have made, in Prometheus' text format. Waits for the processes, 1.5 s at most:
  /// one that does not answer in time counts as it did the last time, and so does one that has
  /// died, but for its gauges.
  virtual std::string metrics_text() = 0;

  /// Makes all agents stop their processes (SIGSTOP) and waits at most `timeout` until they have,
  /// so that this process may stop itself: until resume(), silence does not count as death. If this
  /// process ends meanwhile, all others end with it as usual.
  virtual void suspend(std::chrono::milliseconds timeout = std::chrono::seconds(1)) = 0;
  /// Continues the processes.
  virtual void resume() = 0;

  /// Ends all actors and agents: a stop message, then SIGKILL after half of `timeout`. No watches
  /// are notified any more. Idempotent; bounded by `timeout` + 1 s, and by callback_grace (see
  /// ClusterOptions::calls, 5 s) for a callback of a watch, and again for one of a future, that
  /// does not return. Like a local actor whose method does not, it is left behind with its thread,
  /// which an error in the log tells: what it uses must live on, as what it has captured does.
  virtual void shutdown(std::chrono::milliseconds timeout = std::chrono::seconds(1)) = 0;

 protected:
  using AddressCallback = std::function<void(Result<SharedAddress>)>;
  using LocalFactory = std::function<Result<std::unique_ptr<ActorObject>>(ActorContext&)>;
  virtual void spawn_remote(const SpawnOptions& options, std::string type,
                            EncodedArguments arguments, AddressCallback done) = 0;
  virtual void spawn_here(const SpawnOptions& options, std::string type, LocalFactory make,
                          AddressCallback done) = 0;
  virtual Result<ActorAddress> find_address(std::string_view name, std::string_view name_space,
                                            std::string_view type) const = 0;
  virtual const SendTask& task_sender() const = 0;

 private:
  template <class A, class Start>
  Future<ActorHandle<A>> typed(Start&& start) {
    const auto calls = hub().lock();
    const Promise<ActorHandle<A>> promise({calls ? calls->callbacks() : nullptr});
    start([promise, hub = hub()](Result<SharedAddress> address) {
      if (!address.ok()) return promise.complete(std::move(address).error());
      promise.complete(ActorHandle<A>(*std::move(address), hub));
    });
    return promise.future();
  }
};

}  // namespace troupe
