#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/driver/domain.hpp"
#include "actors/driver/engine_spec.hpp"
#include "actors/driver/router.hpp"
#include "actors/engine/report.hpp"
#include "actors/engine/request.hpp"
#include "actors/executor/executor.hpp"
#include "actors/worker/worker.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The actor that builds an engine and speaks for it: spawns executors and workers, watches them,
/// routes requests to replicas and reports back. Lives in the process that has the Cluster.
class Driver {
 public:
  /// `cluster` outlives the actor.
  Driver(ActorContext& context, Cluster* cluster, EngineSpec spec, EngineEvents events);

  /// Spawns everything, loads the model and begins to serve. Errors name the actor concerned.
  Result<EngineInfo> start();
  /// Each goes to the replica that the router chooses, and waits here while its executor takes no
  /// calls.
  Result<void> submit(std::vector<Request> requests);
  /// As Executor::drain.
  Result<void> drain();
  /// Has every process of the engine tell EngineEvents::on_telemetry of itself: totals, and with
  /// `all` everything. Returns how many will, each once.
  std::int32_t ask_telemetry(bool all);
  /// From the executor.
  void report(EngineReport report);
  /// Hands requests to the executor of a domain once more, which took no calls. From submit.
  void submit_again(std::int32_t domain, std::int32_t replica, std::vector<Request> requests);
  /// Answers requests that a domain's executor failed on. From submit, when it hears of that.
  void refuse(std::int32_t domain, const std::vector<std::uint64_t>& requests,
              const std::string& why);

  using Arguments = troupe::Arguments<Cluster*, EngineSpec, EngineEvents>;
  using Methods =
      troupe::Methods<&Driver::start, &Driver::submit, &Driver::drain, &Driver::ask_telemetry,
                      &Driver::report, &Driver::submit_again, &Driver::refuse>;
  static constexpr std::string_view actor_type = "Driver";

 private:
  ActorContext& context_;
  Cluster* cluster_;
  EngineSpec spec_;
  EngineEvents events_;
  std::uint32_t epoch_ = 1;
  SpanRecorder recorder_;
  std::int64_t since_ns_ = 0;  ///< when start() was done
  Mesh mesh_;
  std::optional<Router> router_;
  std::vector<std::unique_ptr<Domain>> domains_;
};

}  // namespace troupe
