#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/actor/actor_down.hpp"
#include "runtime/actor/actor_names.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/due_restart.hpp"
#include "runtime/actor/ended_actors.hpp"
#include "runtime/actor/log_places.hpp"
#include "runtime/actor/restart_budget.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/node/placement_table.hpp"
#include "runtime/object/encoded_value.hpp"
#include "runtime/state/messages.hpp"

namespace troupe {

/// Everything the driver knows about actors, processes and nodes: where each actor lives, its name
/// and its reserved resources. Of the actors that have ended it remembers the latest. A plain state
/// machine without I/O; callable from any thread. Starts and ends take time of their own actors
/// alone, however many others there are.
class ActorRegistry {
 public:
  /// `name_space`: see ClusterOptions.
  ActorRegistry(std::vector<NodeSpec> nodes, PlacementStrategy strategy, LogPlaces logs,
                std::string name_space = {});

  /// Gives a node the name under which it has joined. `on_trial`: until admit_node() it gets actors
  /// that name it alone.
  void name_node(std::size_t node, const std::string& name, bool on_trial = false);

  using AddressCallback = std::function<void(Result<ActorAddress>)>;

  /// What a new actor is given.
  struct Admission {
    ActorAddress address;  ///< without endpoint
    std::size_t node = 0;
    ProcessId process = 0;
    bool starts_process = false;  ///< the actor is the first in its process
    std::string process_name;
    std::vector<int> devices;
    bool hides_other_devices = false;
    bool dedicated_thread = false;
    bool wants_thread = false;  ///< SpawnOptions::dedicated_thread
    int bound_cpus = 0;         ///< see StartActor
    int max_concurrency = 0;    ///< see SpawnOptions
    std::int64_t memory_limit = 0;
  };
  /// Admits an actor on a node: checks the name, places it, and finds or makes its process.
  /// on_started, on_failed or one of the ends reports the outcome of the start and calls `done`.
  /// `arguments` are kept if it may be restarted, as are their objects until its end: see
  /// take_unneeded_objects(). `owner`: the actor that spawns it, or 0;
  /// actor_died if that is gone.
  Result<Admission> admit(const SpawnOptions& options, const std::string& type,
                          const EncodedArguments& arguments, AddressCallback done,
                          ActorId owner = 0);
  /// Returns the actors whose owners have gone since the last call; their names are free. They are
  /// to be stopped.
  std::vector<ActorId> take_orphans();
  bool owns(ActorId owner, ActorId actor) const;
  /// Returns the objects of the arguments of actors that have ended for good since the last call:
  /// to be let go outside of the lock.
  std::vector<ObjectSharePtr> take_unneeded_objects();
  /// The next incarnation of an actor.
  struct Restart {
    Admission admission;
    Bytes arguments;
  };
  /// Places an actor whose restart is due. not_found if it is not to be restarted any more, if this
  /// incarnation was begun by an earlier restart, or if it waits for its bundle to be placed again;
  /// others are those of admit, for on_failed.
  Result<Restart> admit_again(ActorId actor, std::uint32_t incarnation);
  /// Admits an actor of the driver process, which is at `endpoint`; its on_started or on_failed
  /// follows too. The address is the registry's own: whoever keeps it makes no copy.
  Result<SharedAddress> admit_local(const SpawnOptions& options, const std::string& type,
                                    const std::string& endpoint, int pid);

  // Each of the following returns the actors that end because of it, and calls the `done` (without
  // the lock) of actors whose start it decides.

  /// Returns the address of an actor that is there again.
  std::optional<ActorAddress> on_started(const ActorStarted& started);
  std::vector<ActorDown> on_failed(const ActorFailed& failed);
  std::vector<ActorDown> on_ended(const ActorEnded& ended);
  std::vector<ActorDown> on_process_ended(const ProcessEnded& ended);
  std::vector<ActorDown> on_node_lost(std::size_t node, const std::string& how);

  struct ProcessPlace {
    std::size_t node = 0;
    ProcessId process = 0;
    bool is_doomed = false;  ///< it is to be killed: it has lost its bundle
  };
  /// Processes that lost their last actor since the last call, or their bundle; no actor will be
  /// placed in them.
  std::vector<ProcessPlace> take_idle_processes();

  /// See Cluster.
  Result<PlacementGroup> create_placement_group(const PlacementGroupOptions& options);
  std::vector<PlacementGroup> placement_groups() const;
  void admit_node(std::size_t node);
  void close_node(std::size_t node);

  // Room for tasks, which reserve beside actors and tell nobody.

  /// None if there is no room now. The node with the fewest reservations is taken.
  std::optional<PlacementTable::Reservation> reserve(const Resources& asked,
                                                     const std::string& node);
  void release(const PlacementTable::Reservation& reservation);
  /// See PlacementTable.
  Result<void> check_schedulable(const Resources& asked, const std::string& node) const;
  int cpus_of(std::size_t node) const;
  std::string name_of_node(std::size_t node) const;

  /// See Cluster; the restarts of actors that waited for it are due.
  Result<PlacementGroup> place_again(PlacementGroupId id);
  /// Returns the processes of the group's actors, which are to be killed; no actor is admitted into
  /// them or into the group any more.
  Result<std::vector<ProcessPlace>> remove_placement_group(PlacementGroupId id);

  /// The restarts decided since the last call.
  std::vector<DueRestart> take_restarts();
  /// The actor is not restarted any more. Returns its end if it waits for a restart.
  std::vector<ActorDown> forbid_restarts(ActorId actor);

  /// Where a living actor is; empty while it is started.
  std::optional<ActorAddress> address_of(ActorId actor) const;
  /// See Cluster::find.
  Result<ActorAddress> find(std::string_view name, std::string_view space,
                            std::string_view type) const;
  /// That no actor has this name, and which ones have it in other namespaces.
  Error missing(std::string_view name) const;
  /// True while the actor is there or being made.
  bool has(ActorId actor) const;
  /// How the actor ended; `forgotten` if that is too long ago. Empty if it has not ended.
  std::optional<ActorDown> down_of(ActorId actor) const;
  /// The number of processes that are to be started, run, or have not been reported as ended.
  std::size_t process_count() const;
  /// False if the message is about a known actor or process that is not on this node.
  bool is_about_node(const ControlMessage& message, std::size_t node) const;
  /// Returns node and process of a living actor; not_found for others, and between two
  /// incarnations.
  Result<ProcessPlace> process_of(ActorId actor) const;
  /// If no other actor is in its process, lets none in any more, and returns true.
  bool close_process_of(ActorId actor);
  std::vector<Cluster::ActorInfo> actors() const;

  // What an observer sees; each costs what it returns.

  struct Counts {
    std::size_t actors = 0;  ///< without the Directory
    std::size_t restarting = 0;
    std::size_t placement_groups = 0;
  };
  Counts counts() const;
  /// A page of the actors without the Directory, with those that are started or wait for a restart,
  /// and one of those that have ended.
  ActorsReply actor_states(const AskActors& ask) const;
  /// A page of the placement groups.
  GroupsReply group_states(const AskGroups& ask) const;
  Resources free_on(std::size_t node) const;
  struct ActorLog {
    std::string path;  ///< empty: none that the driver knows
    std::string node;
  };
  /// The log of the actor with this name or id, living or lately ended.
  std::optional<ActorLog> log_of(std::string_view actor) const;
  /// Where a living actor runs.
  struct ActorPlace {
    std::string name;
    bool is_local = false;  ///< in the driver's process; else `place` says where
    ProcessPlace place;
  };
  /// That of the actor with this name or id. not_found for others, and between two incarnations.
  Result<ActorPlace> place_of(std::string_view actor) const;

 private:
  /// Makes the restarts due of actors that wait in such bundles of the group.
  void try_waiting_in(PlacementGroupId id, const std::function<bool(std::uint32_t)>& of_bundle);
  /// What it takes to start an actor again.
  struct Restartable {
    SpawnOptions options;
    EncodedArguments arguments;
    RestartBudget budget;
    bool is_waiting = false;  ///< between two incarnations: in no process, with no reservation
    std::string last_end{};   ///< how the incarnation before ended
    ActorLog last_log{};      ///< its log
  };
  /// What an actor has that is not the driver process's own.
  struct Hosted {
    ProcessId process = 0;
    PlacementTable::Reservation reservation;
    AddressCallback done;  ///< set until it has started
    ActorId owner = 0;     ///< 0: none
  };
  /// Small, as there are many: what only some have is made for them.
  struct Actor {
    SharedAddress address;
    std::unique_ptr<Hosted> hosted;  ///< null for an actor of the driver process
    int pid = 0;
    bool named = false;
    bool is_there = false;                               ///< has started
    std::unique_ptr<std::unordered_set<ActorId>> owned;  ///< null before it owns one
    std::unique_ptr<Restartable> restarts;               ///< null if it is never restarted

    bool is_local() const { return hosted == nullptr; }
    ActorId owner() const { return is_local() ? 0 : hosted->owner; }
    /// It has started, or an incarnation before.
    bool was_there() const { return is_local() ? is_there : !address->endpoint.empty(); }
    /// Others may hold the address as it is.
    template <class Change>
    void change_address(Change change) {
      auto changed = std::make_shared<ActorAddress>(*address);
      change(*changed);
      address = std::move(changed);
    }
    void count_incarnation(int more) {
      change_address([more](ActorAddress& changed) {
        changed.incarnation += static_cast<std::uint32_t>(more);
      });
    }
  };
  struct Process {
    std::size_t node = 0;
    std::string name;
    std::string label;
    std::unordered_set<ActorId> actors;
    bool is_closed = false;  ///< takes no more actors
    bool is_stuck = false;   ///< does not end although it was killed
    /// Of an actor that has ended itself and is started again: what it held, as the process still
    /// uses that, and when its restart is due. Both wait for the end of the process.
    std::vector<PlacementTable::Reservation> held;
    std::vector<DueRestart> restarts;
  };
  using Actors = std::map<ActorId, Actor>;  ///< in order, for pages of them

  static constexpr std::size_t remembered_ends = 4096;

  static bool is_directory(const Actor& actor);
  /// The living actor with this name or id; mutex_ is held.
  Actors::const_iterator find_meant(std::string_view actor, ActorId& id) const;
  std::size_t count_actors() const;  ///< without the Directory
  ActorState state_of(const Actor& actor) const;
  /// The full name of an actor that is spawned with these options.
  std::string name_for(const SpawnOptions& options, const std::string& type, ActorId id) const;
  /// The node that the options ask for; empty: any.
  Result<std::string> node_asked(const SpawnOptions& options) const;
  ActorDown describe(const Actor& actor, DownCause cause, int code, const std::string& what) const;
  /// Gives the actor a place and a process there.
  Result<Admission> place(Actor& actor, const SpawnOptions& options);
  /// Returns the actor's reservation, or with `until_its_end` leaves it to the process.
  void leave_process(Actor& actor, bool until_its_end = false);
  /// Lets the actor wait for a restart, if it may be restarted after this; adds how to `down`.
  bool begin_restart(Actor& actor, ActorDown& down);
  void remove(Actors::iterator found);
  void leave_group(ActorId actor, PlacementGroupId group);
  /// What the actor owns is to be stopped.
  void lose_owned(Actor& owner);
  /// Removes these actors, as far as they are known; those not started yet have their `done`
  /// called.
  std::vector<ActorDown> remove_all(std::span<const ActorId> ended, DownCause cause, int code,
                                    const std::string& what);
  /// The open process of this label, on `node` if one is named.
  std::optional<ProcessId> process_labelled(const std::string& label,
                                            const std::string& node) const;
  void open(ProcessId id, const Process& process);
  /// A process that was killed has not ended in time: its actors are restarted without waiting for
  /// that, and what they held stays with it.
  std::vector<ActorDown> on_process_stuck(const ProcessEnded& stuck);
  /// The bundles that the process's actors had are lost, and the other actors in them are doomed.
  void lose_bundles_of(Process& process);
  /// From now on the process takes no actors.
  void close(Process& process);
  void forget_process(ProcessId id);

  mutable std::mutex mutex_;
  std::vector<NodeSpec> nodes_;
  const PlacementStrategy strategy_;
  const LogPlaces logs_;
  PlacementTable placement_;
  ActorId next_actor_ = 1;
  ProcessId next_process_ = 1;
  Actors actors_;
  std::size_t waiting_ = 0;  ///< actors between two incarnations
  std::unordered_map<ProcessId, Process> processes_;
  std::vector<std::unordered_set<ProcessId>> processes_of_node_;
  /// The open processes of each label, by node.
  std::map<std::string, std::map<std::size_t, ProcessId>, std::less<>> labelled_;
  std::vector<ProcessPlace> idle_;
  std::unordered_map<PlacementGroupId, std::unordered_set<ActorId>> actors_of_group_;
  /// Those that may be restarted, also between two incarnations; in order, as they are restarted.
  std::unordered_map<PlacementGroupId, std::set<ActorId>> restartable_of_group_;
  std::vector<DueRestart> restarts_;
  std::vector<ActorId> orphans_;
  std::vector<ObjectSharePtr> unneeded_objects_;
  ActorNames names_;
  EndedActors ended_{remembered_ends};
};

}  // namespace troupe
