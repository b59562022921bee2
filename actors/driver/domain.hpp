#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/report.hpp"
#include "actors/api/request.hpp"
#include "actors/api/request_progress.hpp"
#include "actors/driver/call_until_taken.hpp"
#include "actors/driver/crash_judge.hpp"
#include "actors/driver/loss_notes.hpp"
#include "actors/driver/place_finder.hpp"
#include "actors/driver/request_ledger.hpp"
#include "actors/executor/executor.hpp"
#include "actors/worker/phase_times.hpp"
#include "actors/worker/worker.hpp"
#include "parallel/group/actor_group.hpp"
#include "parallel/mesh/mesh.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"

namespace troupe {

class Driver;

/// The next action for requests that were submitted to an executor.
enum class AfterSubmission {
  nothing,       ///< it has them; or it has ended, and its next incarnation is given them
  submit_again,  ///< it takes no calls at the moment
  refuse,        ///< it failed on them
};
AfterSubmission after_submission(const Result<void>& taken);

/// A step domain as the driver sees it: the replicas that step together (one, unless experts span
/// replicas), their workers, and their common executor. Each phase of the start is begun for all
/// domains before the first is awaited. One thread at a time; but while recover() runs, another one
/// may submit, drain, take what was given up, and note answers and figures.
class Domain {
 public:
  /// `cluster`, `spec` and `mesh` outlive the object. `index` counts domains from 0. `groups`: of
  /// all domains, in order, made of worker_bundles(). `on_wait`: EngineEvents::on_wait. `may_drop`:
  /// whether the domain may be dropped at the moment, for PlaceFinder; null: never.
  Domain(Cluster& cluster, const EngineSpec& spec, const Mesh& mesh,
         std::vector<PlacementGroup> groups, std::int32_t index,
         std::function<void(const EngineWait&)> on_wait, std::function<bool()> may_drop = {});

  /// Requests the processes of the executor, which reports to `driver`, and of the workers, which
  /// report their progress to `load_progress`, if set.
  /// Calls to the driver and the executor that fail on them go to `on_failed`. `notes`: the
  /// driver's, of the processes that are killed from here.
  void begin_spawn(const ActorHandle<Driver>& driver,
                   const ActorHandle<LoadProgress>& load_progress, OnCallFailed on_failed,
                   std::shared_ptr<LossNotes> notes);
  /// Waits for them; from then on `on_down` is called at the end of each one. Errors name the
  /// actor.
  Result<void> finish_spawn(const DownCallback& on_down);

  /// Makes the workers form their group, and the executor read the tokenizer.
  void begin_form();
  /// Makes every worker of the formed group read its part of the model.
  Result<void> begin_load();
  Result<std::vector<WorkerReport>> finish_load();

  /// Allocates the KV cache and connects the executor with the workers.
  void begin_serve(const EngineInfo& info);
  Result<void> finish_serve(const EngineInfo& info);
  /// begin_form() to finish_serve(), of this domain alone; notes how long each phase takes.
  Result<void> bring_up(const EngineInfo& info, PhaseTimes& times);

  /// Ends its processes, and with them an attempt of Recovery that goes on; its places are free
  /// then. The object is of no use any more.
  void end();
  /// Returns the requests that are not answered, and has none any more.
  std::vector<RequestLedger::Unanswered> release_requests();
  /// Takes a request that another domain has released, for replica number `replica`.
  void adopt(std::int32_t replica, RequestLedger::Unanswered request);
  /// Gives the executor the requests that it does not have and is to have now: those of adopt().
  void give_due();
  /// True for an actor of this domain.
  bool has(ActorId actor) const;
  std::vector<ActorId> actors() const;
  /// True if an attempt has found no places for it within PlaceFinder::drop_after; between
  /// attempts.
  bool gave_up_early() const { return places_.gave_up_early(); }
  /// The workers' bundles.
  const PlacementGroup& placed() const { return groups_[static_cast<std::size_t>(index_)]; }
  /// The nodes of its ranks, each once.
  std::vector<std::string> nodes() const;

  /// True if the engine cannot go on without what has ended: an actor of this domain, in the
  /// incarnation that serves or a later one.
  bool needs(const ActorDown& down) const;
  /// Goes on after losses of actors, of which some may be replaced already: one attempt of
  /// Recovery. `losses` returns all that are known by now. A new incarnation of the executor gets
  /// all that is not answered. `on_paused` is called once the survivors have stopped. Errors:
  /// peer_died, cancelled and io if another actor has been lost meanwhile; others are final, as
  /// resource_exhausted if no node took the place of a lost one within RestartLimit::wait_seconds.
  Result<void> recover(const std::function<std::vector<ActorDown>()>& losses,
                       const std::function<void()>& on_paused);
  /// Hashes of the prompts of requests given up since the last call (EngineRecovery::given_up).
  std::vector<std::string> take_given_up();
  /// The number of requests that became suspects since the last call (EngineRecovery::suspects).
  std::size_t take_suspects();
  /// RequestLedger::take_unsaved.
  std::uint64_t take_unsaved();
  /// The epoch of the workers' group.
  std::uint32_t epoch() const { return group_->epoch(); }
  /// When the executor was last asked to begin.
  std::chrono::steady_clock::time_point started_at() const { return started_at_; }

  /// Submits requests to replica number `replica` of the domain. Requests for which the executor
  /// has no credit go back to the driver (Driver::submit_again); those on which it fails go to
  /// Driver::refuse.
  void submit(std::int32_t replica, std::vector<Request> requests);
  /// Submits requests to that incarnation of the executor again.
  void submit_again(std::uint32_t incarnation, std::int32_t replica,
                    std::vector<SubmittedRequest> requests);
  void drain();
  /// Makes the executor and every worker send their telemetry to `events.on_telemetry`
  /// (Worker::telemetry); returns how many will, each once.
  std::int32_t ask_telemetry(bool all, const EngineEvents& events);

  /// Takes note of a report's progress and answers, and removes from it answers that an earlier
  /// report has had.
  void note_answers(EngineReport& report);
  void note_stats(const EngineReport& report);
  /// RequestLedger::used_share.
  double kept_share();
  /// A step is overdue: looks twice which ranks do not arrive (find_missing_ranks), on a thread of
  /// its own. If they have done nothing in between, calls Driver::hung. Does nothing while it
  /// looks.
  void look_into(const OverdueStep& overdue);
  /// Kills the worker of that rank and notes why. False if it is another incarnation by now. Not
  /// while recover() runs.
  bool kill_hung(std::int32_t rank, std::uint32_t incarnation, const std::string& why);
  /// Sums over all incarnations of the executor.
  EngineStats stats() const;

 private:
  std::int32_t replicas() const { return mesh_.replicas_per_domain(); }
  int workers_per_replica() const { return mesh_.world_size() / mesh_.shape().data; }
  int first_rank() const { return index_ * replicas() * workers_per_replica(); }
  bool can_restart() const { return spec_.restart.max > 0; }
  /// Recovery bounds restarts; the runtime only pauses between early ends.
  int max_restarts() const { return can_restart() ? -1 : 0; }
  /// Makes the executor, unless it is lost, pause, and the workers that serve and are not lost
  /// leave; kills workers that do not in time.
  Result<void> pause(const std::vector<ActorDown>& losses);
  bool is_lost(ActorId actor, const std::vector<ActorDown>& losses) const;
  /// Waits until `worker` has left; kills it if it serves still after `deadline`.
  void await_leave(const ActorHandle<Worker>& worker, Future<void>& call, Deadline& deadline);
  /// True if the incarnation that serves is there.
  bool serves_still(ActorId actor) const;
  bool is_there(ActorId actor, std::uint32_t incarnation) const;
  /// Kills a worker of that incarnation, for a reason that is told with its loss.
  void kill(const ActorHandle<Worker>& worker, std::uint32_t incarnation, std::string why);
  /// If the losses are a crash that has not been counted: counts it against the requests which
  /// were under way. Returns those that are given up.
  std::vector<std::uint64_t> judge_crash(const std::vector<ActorDown>& losses);
  /// Takes note of where the workers' bundles are.
  void note_places();
  /// Submits all unanswered requests to the present incarnation of the executor, if it is a new
  /// one.
  void hand_over();
  void look_twice(const std::stop_token& stop, const OverdueStep& overdue);
  std::vector<RankState> ask_states(const std::stop_token& stop) const;
  std::string executor_name() const;
  std::vector<std::string> worker_names() const;
  /// The rank where the last stage of the first replica answers; the executor is on its node.
  int answering_rank() const;
  const std::string& executor_node() const;
  /// The step channels of replica number `replica` of the domain, whose workers are at `workers`.
  ReplicaAddresses addresses_of(std::int32_t replica, std::span<const StepAddresses> workers) const;
  WorkerSpec worker_spec(int rank, const ActorHandle<LoadProgress>& load_progress) const;

  Cluster& cluster_;
  const EngineSpec& spec_;
  const Mesh& mesh_;
  std::vector<PlacementGroup> groups_;  ///< the workers' bundles, of all domains
  std::vector<std::string> nodes_;      ///< of the ranks
  std::int32_t index_;

  std::vector<Future<ActorHandle<Executor>>> spawning_executor_;  ///< one, or none
  std::vector<Future<ActorHandle<Worker>>> spawning_workers_;
  std::vector<Future<std::uint32_t>> loading_executor_;  ///< one, or none
  std::vector<Future<WorkerReport>> loading_workers_;
  std::vector<Future<StartedWorker>> starting_workers_;

  ActorHandle<Executor> executor_;
  std::vector<ActorHandle<Worker>> workers_;  ///< by rank, from first_rank() on
  std::optional<ActorGroup> group_;           ///< of the workers, from begin_form() on
  std::future<Result<void>> forming_;         ///< ends before the group
  /// The incarnations that serve, by actor. Workers that do not are not in it.
  std::unordered_map<ActorId, std::uint32_t> serving_;
  EngineInfo info_;  ///< of begin_serve()
  std::chrono::steady_clock::time_point started_at_{};
  std::uint32_t loaded_executor_ = 0;  ///< the incarnation that has loaded last
  ActorHandle<Driver> driver_;         ///< of begin_spawn()
  OnCallFailed on_failed_;
  std::shared_ptr<LossNotes> notes_;
  std::vector<WatchToken> watches_;

  PlaceFinder places_;
  CrashJudge judge_;
  std::vector<std::uint64_t> taken_back_;  ///< for the executor, once it starts

  std::mutex requests_mutex_;                 ///< of the next five
  std::vector<std::string> given_up_;         ///< see take_given_up()
  std::size_t suspects_ = 0;                  ///< see take_suspects()
  RequestLedger ledger_;                      ///< used if the executor can be restarted
  std::optional<std::uint32_t> executor_at_;  ///< the incarnation that is given requests
  bool is_draining_ = false;

  EngineStats stats_;                    ///< of the incarnation that has reported last
  EngineStats earlier_stats_;            ///< sums of those before it
  std::uint32_t stats_incarnation_ = 0;  ///< whose they are

  std::atomic<bool> is_looking_ = false;  ///< look_twice() runs
  std::jthread look_;
};

}  // namespace troupe
