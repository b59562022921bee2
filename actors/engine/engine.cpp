#include "actors/engine/engine.hpp"

#include <chrono>
#include <utility>

#include "actors/worker/startup/nccl_environment.hpp"

namespace troupe {
namespace {

constexpr auto local_timeout = std::chrono::seconds(10);

}  // namespace

void add_engine_actors(ActorTypes& types) {
  types.add<Executor>();
  types.add<Worker>();
  types.prepare_processes(set_nccl_environment);
}

Result<std::unique_ptr<Engine>> Engine::create(Cluster& cluster, EngineSpec spec,
                                               EngineEvents events) {
  TROUPE_TRY(
      auto driver,
      cluster.spawn_local<Driver>({.name = "driver"}, &cluster, std::move(spec), std::move(events))
          .get(local_timeout));
  auto start = driver.call<&Driver::start>();
  return std::unique_ptr<Engine>(new Engine(std::move(driver), std::move(start)));
}

std::optional<Result<EngineInfo>> Engine::started(std::chrono::milliseconds timeout) {
  if (!start_.wait(timeout)) return std::nullopt;
  return start_.get(timeout);
}

Result<void> Engine::submit(std::vector<Request> requests) {
  return driver_.call<&Driver::submit>(std::move(requests)).get(local_timeout);
}

Future<std::int32_t> Engine::ask_telemetry(bool all) {
  return driver_.call<&Driver::ask_telemetry>(all);
}

Result<std::string> Engine::drain_node(const std::string& node) {
  return driver_.call<&Driver::drain_node>(node).get(local_timeout);
}

Result<void> Engine::drain() { return driver_.call<&Driver::drain>().get(local_timeout); }

}  // namespace troupe
