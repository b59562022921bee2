#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/driver/driver.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Registers the actors of an engine; for init().
void add_engine_actors(ActorTypes& types);

/// A model being served by a group of actors: requests go in, completions come out through
/// EngineEvents, in the order they finish. All functions are callable from any thread.
class Engine {
 public:
  /// Begins to start the engine on `cluster`, which outlives it, and returns at once; requests may
  /// be submitted once started() is ok.
  static Result<std::unique_ptr<Engine>> create(Cluster& cluster, EngineSpec spec,
                                                EngineEvents events);

  /// Waits at most `timeout` for the start to succeed or fail; empty while it goes on. Returns the
  /// outcome once.
  std::optional<Result<EngineInfo>> started(std::chrono::milliseconds timeout);

  /// Submits requests. Each is answered by one Completion, unless the engine fails, or drain()
  /// drops it. Errors: resource_exhausted, peer_died.
  Result<void> submit(std::vector<Request> requests);

  /// Makes every process send its telemetry to EngineEvents::on_telemetry: totals, and with `all`
  /// everything. The future returns how many will, each once. Errors: those of ActorHandle::call.
  Future<std::int32_t> ask_telemetry(bool all);

  /// Lets a node go (Driver::drain_node). Errors: those; timeout, peer_died.
  Result<std::string> drain_node(const std::string& node);

  /// Drops and reports requests that have not begun; finishes those that run.
  Result<void> drain();

 private:
  Engine(ActorHandle<Driver> driver, Future<EngineInfo> start)
      : driver_(std::move(driver)), start_(std::move(start)) {}

  ActorHandle<Driver> driver_;
  Future<EngineInfo> start_;
};

}  // namespace troupe
