#pragma once

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
/// routes requests to replicas and reports back. It runs in the process of the Cluster.
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
  void submit_again(std::int32_t domain, std::int32_t replica, std::vector<Request> requests);
  /// Answers requests on which a domain's executor failed. Called by submit's callbacks.
  void refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
              const std::string& why);

  using Arguments = troupe::Arguments<Cluster*, EngineSpec, EngineEvents>;
  using Methods =
      troupe::Methods<&ReportSink::report, &Driver::start, &Driver::submit, &Driver::drain,
                      &Driver::ask_telemetry, &Driver::submit_again, &Driver::refuse>;
  static constexpr std::string_view actor_type = "Driver";

 private:
  ActorContext& context_;
  Cluster* cluster_;
  EngineSpec spec_;
  EngineEvents events_;
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;  ///< when start() finished
  Mesh mesh_;
  std::optional<Router> router_;
  std::vector<std::unique_ptr<Domain>> domains_;
};

}  // namespace troupe
