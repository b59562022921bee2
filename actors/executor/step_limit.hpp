#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "actors/step/step_plan.hpp"

namespace troupe {

/// How long a step may take, from those that were measured: one that takes longer may never be
/// answered, since a rank is alive but does not arrive. A plain class; one thread at a time.
class StepLimit {
 public:
  using Duration = std::chrono::microseconds;
  /// No step is overdue sooner: it may have to load kernels, to record a graph or to wait for
  /// cores.
  static constexpr Duration least_on_cpus = std::chrono::seconds(10);
  /// On GPUs a rank's calls are enqueued, so that a step which is only slow looks like one that
  /// hangs. Sooner than who waits for the GPU gives up (30 s).
  static constexpr Duration least_on_gpus = std::chrono::seconds(20);
  /// A step is overdue after so many times what it should take.
  static constexpr int factor = 20;

  /// `least`: no limit is shorter.
  explicit StepLimit(Duration least = least_on_cpus) : least_(least) {}

  /// The work of a plan: its tokens, and a part of a token for each position that one attends to.
  static std::uint64_t work_of(const StepPlan& plan);

  /// A step of so much work took so long.
  void note(std::uint64_t work, Duration time);
  /// The limit for a step of so much work; none before one has been measured: the first one warms
  /// up.
  std::optional<Duration> limit(std::uint64_t work) const;
  /// Workers that have started anew warm up again.
  void restart() { longest_ = {}; }

 private:
  Duration least_;
  /// The longest step of each magnitude of work, [2^i, 2^(i+1)); 0: none.
  std::array<Duration, 64> longest_{};
};

}  // namespace troupe
