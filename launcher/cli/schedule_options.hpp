#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/simulation/schedule_simulation.hpp"
#include "actors/simulation/schedule_trace.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher bench schedule`.
struct ScheduleOptions {
  std::vector<std::string> policies;  ///< names known to `scheduling_policy`, without duplicates
  SchedulerConfig scheduler;          ///< its policy is replaced by each of them in turn
  StepCost cost;
  TraceSpec trace;
  std::string workload;  ///< a .csv file of lengths, of which the first trace.requests are used;
                         ///< empty: random
  TraceTargets targets;
  std::string json_path;  ///< output file for all figures; empty: none
};

/// The arguments of `launcher bench schedule`.
class ScheduleArguments {
 public:
  ScheduleArguments();

  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<ScheduleOptions> judge() const;

 private:
  ScheduleOptions options_;
  std::optional<std::int32_t> num_prompts_, steps_in_flight_;
  std::string lengths_ = "lognormal";
  double first_token_ms_ = 500.0;
  double each_token_ms_ = 25.0;
  bool no_chunked_prefill_ = false;
  bool no_prefix_caching_ = false;

  void declare_trace(CLI::App& app);
  void declare_targets(CLI::App& app);
  void declare_scheduler(CLI::App& app);
  void declare_cost(CLI::App& app);
};

}  // namespace troupe
