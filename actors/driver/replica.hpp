#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/driver/engine_spec.hpp"
#include "actors/engine/report.hpp"
#include "actors/engine/request.hpp"
#include "actors/executor/executor.hpp"
#include "actors/worker/worker.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/actor/cluster.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// One replica of the model as the driver sees it: its executor, its workers, and the requests that
/// it has. Each phase of the start is begun for all replicas before the first is waited for. One
/// thread at a time.
class Replica {
 public:
  /// `cluster` and `spec` outlive the object. `index` counts replicas from 0, `epoch` names the
  /// group.
  Replica(Cluster& cluster, const EngineSpec& spec, std::int32_t index, std::uint32_t epoch);

  /// Asks for the processes of the executor and the workers.
  void begin_spawn(const ActorHandle<Driver>& driver);
  /// Waits for them; `on_down` hears of each one's end from then on. Errors name the actor.
  Result<void> finish_spawn(const DownCallback& on_down);

  /// Has every worker read its part of the model, and the executor the tokenizer.
  void begin_load();
  Result<std::vector<WorkerReport>> finish_load();

  /// Allocates the KV cache and connects the executor with the workers.
  void begin_serve(std::int64_t kv_cache_blocks);
  Result<void> finish_serve(std::int64_t kv_cache_blocks);

  /// Those that the executor cannot be given are told to `driver` (Driver::refuse).
  void submit(std::vector<Request> requests, const ActorHandle<Driver>& driver);
  void drain();
  /// Takes note of what is answered.
  void account(const EngineReport& report);

  /// About how many tokens the requests that it has still need, prompts included.
  std::int64_t outstanding_tokens() const { return outstanding_tokens_; }
  const EngineStats& stats() const { return stats_; }

 private:
  std::string executor_name() const;
  std::string worker_name(std::size_t tensor_rank) const;
  WorkerSpec worker_spec(std::int32_t tensor_rank) const;

  Cluster& cluster_;
  const EngineSpec& spec_;
  std::int32_t index_;
  std::uint32_t epoch_;

  std::vector<Future<ActorHandle<Executor>>> spawning_executor_;  ///< one, or none
  std::vector<Future<ActorHandle<Worker>>> spawning_workers_;
  std::vector<Future<void>> loading_executor_;  ///< one, or none
  std::vector<Future<WorkerReport>> loading_workers_;
  std::vector<Future<std::string>> starting_workers_;

  ActorHandle<Executor> executor_;
  std::vector<ActorHandle<Worker>> workers_;  ///< by tensor rank
  std::vector<WatchToken> watches_;
  std::unordered_map<std::uint64_t, std::int64_t> outstanding_;  ///< request -> its tokens
  std::int64_t outstanding_tokens_ = 0;
  EngineStats stats_;
};

/// About how many tokens a request takes: those of its prompt (four bytes of text each) and those
/// that it may generate.
std::int64_t estimated_tokens(const Request& request);

}  // namespace troupe
