#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/report.hpp"
#include "actors/api/report_sink.hpp"
#include "actors/api/request.hpp"
#include "actors/driver/domain.hpp"
#include "actors/driver/domain_return.hpp"
#include "actors/driver/loss_notes.hpp"
#include "actors/driver/recovery.hpp"
#include "actors/driver/recovery_budget.hpp"
#include "actors/driver/router.hpp"
#include "actors/executor/executor.hpp"
#include "actors/worker/worker.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The actor that builds an engine and controls it: spawns executors and workers, watches them,
/// routes requests to replicas and reports back. It decides what follows when one is lost: a
/// Recovery, within the budget of the spec's RestartLimit, or the engine's end. With
/// EngineSpec::elastic a step domain without places is dropped instead:
///
///     serving --loss--> recovering --ok--> serving
///                        | no place within PlaceFinder::drop_after while another domain serves,
///                        | or what else cannot be recovered from
///                        v
///                     dropped --places (DomainReturn)--> serving
///
/// A domain that has no place at the start begins as dropped, if another one has (grow()): an
/// engine may begin with fewer nodes than it has replicas for. The processes of a dropped domain
/// end, its replicas get no requests, and those that it has not answered go to other domains, with
/// the tokens that they have. The engine ends once there has been no domain for
/// RestartLimit::wait_seconds. It runs in the process of the Cluster.
class Driver final : public ReportSink {
 public:
  /// `cluster` outlives the actor.
  Driver(ActorContext& context, Cluster* cluster, EngineSpec spec, EngineEvents events);

  /// Spawns everything, loads the model and begins to serve. Errors name the actor concerned.
  Result<EngineInfo> start();
  /// Sends each request to the replica that the router chooses; requests wait here while its
  /// executor takes no calls.
  Result<void> submit(std::vector<Request> requests);
  /// See Executor::drain.
  Result<void> drain();
  /// Lets a node go: drops the domains that have ranks there and dismisses its agent. The domains
  /// come back on other nodes, if there is room. Returns what has been done, for people. Errors:
  /// not_found for an unknown node, peer_died for a lost one; unsupported if a domain is there and
  /// the engine is not elastic; resource_exhausted if no domain would serve without it.
  Result<std::string> drain_node(const std::string& node);
  /// Makes every process of the engine send its telemetry to EngineEvents::on_telemetry: totals,
  /// and with `all` everything. Returns how many will, each once.
  std::int32_t ask_telemetry(bool all);
  /// Called by the executors.
  void report(EngineReport report) override;
  /// Submits requests again to the executor of a domain that took no calls, if it is still that of
  /// the domain. Called by submit's callbacks.
  void submit_again(std::int32_t domain, ActorId executor, std::uint32_t incarnation,
                    std::int32_t replica, std::vector<SubmittedRequest> requests);
  /// Answers requests with an error. Called by submit's callbacks if a domain's executor failed on
  /// them, and by an attempt of its Recovery that gives them up.
  void refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
              const std::string& code, const std::string& why);

  /// An actor of the domain is lost. Called by the watches' callbacks once the engine serves.
  void lost(std::int32_t domain, const ActorDown& down);
  /// A rank of the domain hangs, in that epoch of its group and incarnation of its worker; `ranks`
  /// is where all are. Kills it, and so makes it a loss. Called by Domain::look_into.
  void hung(std::int32_t domain, std::uint32_t epoch, std::int32_t rank, std::uint32_t incarnation,
            const std::string& why, const std::vector<std::string>& ranks);
  /// An attempt of the domain's Recovery has stopped the survivors; has ended. Called by its
  /// thread.
  void attempt_paused(std::int32_t domain);
  void attempt_ended(std::int32_t domain);
  /// A domain that was dropped is there again; there has been none for too long. Called by its
  /// DomainReturn.
  void domain_is_back(std::int32_t domain);
  void search_ended(std::int32_t domain, const std::string& why);

  using Arguments = troupe::Arguments<Cluster*, EngineSpec, EngineEvents>;
  using Methods =
      troupe::Methods<&ReportSink::report, &Driver::start, &Driver::submit, &Driver::drain,
                      &Driver::ask_telemetry, &Driver::submit_again, &Driver::refuse, &Driver::lost,
                      &Driver::attempt_paused, &Driver::attempt_ended, &Driver::hung,
                      &Driver::domain_is_back, &Driver::search_ended, &Driver::drain_node>;
  static constexpr std::string_view actor_type = "Driver";

 private:
  DownCallback watcher(std::int32_t domain);
  void begin_recovery(std::int32_t domain);
  /// Ends the engine, because of these losses and, if it says something, `why`.
  void give_up(std::vector<ActorDown> losses, const std::string& why);
  void tell_if_complete(Recovery& recovery);
  /// Tells of a report, with the figures of all domains.
  void publish(EngineReport report);

  /// A domain that is not there.
  struct Dropped {
    std::chrono::steady_clock::time_point since;
    std::vector<std::string> nodes;  ///< that it was on; none: it has not served yet
    std::vector<ActorDown> losses;
    std::unique_ptr<DomainReturn> search;
  };
  /// A domain that is back, and has not answered a request since.
  struct Returned {
    std::chrono::steady_clock::time_point could_be;  ///< there was a node for it from then on
    std::string node;                                ///< that came last
  };
  PlacementGroupOptions places_of(std::int32_t domain) const;
  /// Reserves the places of all domains, or, if the engine is elastic, of one at least.
  Result<void> place_domains(std::int32_t domains);
  /// Loads the model, and begins to serve on the domains that are there. `times` takes note of
  /// both.
  Result<EngineInfo> bring_up_all(PhaseTimes& times);
  Result<void> choose_blocks(const std::vector<WorkerReport>& reports, EngineInfo& info) const;
  /// Searches places for domains that had none at the start.
  void grow();
  /// Begins to search places for a domain that is not there.
  void begin_search(std::int32_t domain, std::vector<std::string> nodes,
                    std::vector<ActorDown> losses);
  /// The newest of the nodes of a domain that is back, which was dropped then.
  Returned returned(std::int32_t domain, std::chrono::steady_clock::time_point since) const;
  /// Tells of the first answer of a domain that is back.
  void note_first_answer(const EngineReport& report);
  std::unique_ptr<Domain> make_domain(std::int32_t domain, std::vector<PlacementGroup> groups);
  std::unique_ptr<Recovery> make_recovery(std::int32_t domain);
  bool is_there(std::int32_t domain) const {
    return domains_.at(static_cast<std::size_t>(domain)) != nullptr;
  }
  /// Counts the domains that serve: those that are there and do not recover.
  void count_serving();
  bool others_serve(std::int32_t domain) const;
  /// Drops a domain that cannot recover, if it may be dropped; else ends the engine. `has_ended`:
  /// an actor of it is not started again.
  void drop_or_give_up(std::int32_t domain, const std::string& why, bool has_ended);
  Result<void> check_is_alive(const std::string& node) const;
  /// Ends a domain's processes and drops it, once no attempt runs.
  void end(std::int32_t domain, const std::string& why);
  /// No requests go to a domain's replicas until they are opened.
  void close_replicas(std::int32_t domain);
  /// Drops a domain of which no attempt runs.
  void drop(std::int32_t domain, const std::string& why);
  std::unique_ptr<DomainReturn> make_search(std::int32_t domain, std::vector<std::string> nodes);
  /// Distributes requests that no domain has.
  void distribute(std::vector<RequestLedger::Unanswered> requests);
  std::pair<std::size_t, std::int32_t> place_of(int replica) const;

  ActorContext& context_;
  Cluster* cluster_;
  EngineSpec spec_;
  EngineEvents events_;
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;  ///< when start() finished
  Mesh mesh_;
  std::optional<Router> router_;
  std::atomic<std::int32_t> serving_ = 0;      ///< see count_serving(); attempts' threads read it
  std::atomic<std::int32_t> first_there_ = 0;  ///< of the domains that are there
  std::atomic<std::int32_t> there_ = 0;  ///< domains that are there; searches' threads read it
  std::vector<std::unique_ptr<Domain>> domains_;  ///< null: it is dropped
  RecoveryBudget budget_;
  const std::shared_ptr<LossNotes> notes_ = std::make_shared<LossNotes>();
  std::vector<std::unique_ptr<Recovery>> recoveries_;  ///< of the domains
  std::vector<PlacementGroup> groups_;                 ///< of the domains, as they were placed last
  std::vector<Resources> bundles_;                     ///< of each group
  /// By domain: it is dropped for this reason once its attempt ends.
  std::vector<std::optional<std::string>> end_because_;
  std::map<std::int32_t, Returned> returned_;        ///< by domain
  std::vector<RequestLedger::Unanswered> homeless_;  ///< requests while no domain is there
  EngineStats past_stats_;                           ///< sums of dropped domains
  EngineInfo info_;
  ActorHandle<LoadProgress> load_progress_;
  OnCallFailed on_failed_;
  bool is_draining_ = false;
  std::map<std::int32_t, Dropped> dropped_;  ///< by domain; after what its threads use
  bool is_given_up_ = false;
  /// Set when the engine is started; losses before that end the start.
  std::shared_ptr<std::atomic<bool>> serves_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace troupe
