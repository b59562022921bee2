#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/engine/request.hpp"
#include "actors/scheduler/scheduler.hpp"

namespace troupe {

/// How busy an engine is. Token counts are from its start.
struct EngineStats {
  std::uint64_t running = 0;        ///< requests that hold KV blocks
  std::uint64_t waiting = 0;        ///< admitted by nobody yet
  std::uint64_t output_tokens = 0;  ///< generated
  std::uint64_t steps = 0;
  std::uint64_t step_us = 0;    ///< time from a plan's sending to its result, all steps
  std::uint64_t model_us = 0;   ///< of it in the model, on the answering worker
  double kv_use = 0.0;          ///< of the KV blocks, 0..1
  SchedulerCounters scheduler;  ///< of all replicas

  /// Adds another domain's; kv_use too, for the caller to divide.
  void add(const EngineStats& other) {
    running += other.running;
    waiting += other.waiting;
    output_tokens += other.output_tokens;
    steps += other.steps;
    step_us += other.step_us;
    model_us += other.model_us;
    kv_use += other.kv_use;
    scheduler.add(other.scheduler);
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(running, waiting, output_tokens, steps, step_us, model_us, kv_use, scheduler);
  }
};

/// What an executor tells the driver from time to time.
struct EngineReport {
  std::int32_t domain = 0;
  std::vector<Completion> completions;
  std::vector<std::uint64_t> dropped;  ///< requests that drain() ended before they had begun
  EngineStats stats;
  bool first_token = false;  ///< the first token of the engine's life is there

  template <class Archive>
  void fields(Archive& archive) {
    archive(domain, completions, dropped, stats, first_token);
  }
};

}  // namespace troupe
