#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "actors/driver/driver.hpp"
#include "actors/driver/engine_spec.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Registers the actors that an engine consists of; for init().
void add_engine_actors(ActorTypes& types);

/// A model being served by a group of actors: requests go in, completions come out through
/// EngineEvents, in the order they finish. All functions are callable from any thread.
class Engine {
 public:
  /// Begins to start the engine on `cluster`, which outlives it, and returns at once; requests may
  /// be submitted when started() is ok.
  static Result<std::unique_ptr<Engine>> create(Cluster& cluster, EngineSpec spec,
                                                EngineEvents events);

  /// Waits at most `timeout` for the start to succeed or fail; empty while it goes on. The outcome
  /// is given once.
  std::optional<Result<EngineInfo>> started(std::chrono::milliseconds timeout);

  /// Hands requests over. Each is answered by one Completion, unless the engine fails, or drain()
  /// drops it. Errors: resource_exhausted, peer_died.
  Result<void> submit(std::vector<Request> requests);

  /// Has every process tell EngineEvents::on_telemetry of itself: totals, and with `all`
  /// everything. The future says how many will, each once. Errors: those of ActorHandle::call.
  Future<std::int32_t> ask_telemetry(bool all);

  /// Requests that have not begun are dropped and reported; those that run are finished.
  Result<void> drain();

 private:
  Engine(ActorHandle<Driver> driver, Future<EngineInfo> start)
      : driver_(std::move(driver)), start_(std::move(start)) {}

  ActorHandle<Driver> driver_;
  Future<EngineInfo> start_;
};

}  // namespace troupe
