#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/report.hpp"
#include "actors/api/report_sink.hpp"
#include "actors/api/request.hpp"
#include "actors/driver/domain.hpp"
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
/// Recovery, within the budget of the spec's RestartLimit, or the engine's end. It runs in the
/// process of the Cluster.
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
  /// Makes every process of the engine send its telemetry to EngineEvents::on_telemetry: totals,
  /// and with `all` everything. Returns how many will, each once.
  std::int32_t ask_telemetry(bool all);
  /// Called by the executors.
  void report(EngineReport report) override;
  /// Submits requests again to the executor of a domain that took no calls. Called by submit's
  /// callbacks.
  void submit_again(std::int32_t domain, std::uint32_t incarnation, std::int32_t replica,
                    std::vector<SubmittedRequest> requests);
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

  using Arguments = troupe::Arguments<Cluster*, EngineSpec, EngineEvents>;
  using Methods =
      troupe::Methods<&ReportSink::report, &Driver::start, &Driver::submit, &Driver::drain,
                      &Driver::ask_telemetry, &Driver::submit_again, &Driver::refuse, &Driver::lost,
                      &Driver::attempt_paused, &Driver::attempt_ended, &Driver::hung>;
  static constexpr std::string_view actor_type = "Driver";

 private:
  DownCallback watcher(std::int32_t domain);
  void begin_recovery(std::int32_t domain);
  /// Ends the engine, because of these losses and, if it says something, `why`.
  void give_up(std::vector<ActorDown> losses, const std::string& why);
  void tell_if_complete(Recovery& recovery);
  /// Passes a report on, with the figures of all domains.
  void pass_on(EngineReport report);

  ActorContext& context_;
  Cluster* cluster_;
  EngineSpec spec_;
  EngineEvents events_;
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;  ///< when start() finished
  Mesh mesh_;
  std::optional<Router> router_;
  std::vector<std::unique_ptr<Domain>> domains_;
  RecoveryBudget budget_;
  const std::shared_ptr<LossNotes> notes_ = std::make_shared<LossNotes>();
  std::vector<std::unique_ptr<Recovery>> recoveries_;  ///< of the domains
  bool is_given_up_ = false;
  /// Set when the engine is started; losses before that end the start.
  std::shared_ptr<std::atomic<bool>> serves_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace troupe
