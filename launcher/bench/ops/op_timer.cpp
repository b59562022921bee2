#include "launcher/bench/ops/op_timer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t runs = 5;
constexpr std::size_t trial = 3;   // operations timed to decide how many a run has
constexpr std::size_t most = 400;  // operations of a run

}  // namespace

Result<double> OpTimer::time(const std::function<void(std::size_t turn)>& enqueue,
                             bool capturable) {
  const auto seconds_of = [&](const std::function<void()>& body) -> Result<double> {
    TROUPE_CHECK(ops_.stream().synchronize());
    const auto begin = Clock::now();
    body();
    TROUPE_CHECK(ops_.stream().synchronize());
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto several = [&](std::size_t count) {
    for (std::size_t turn = 0; turn < count; ++turn) enqueue(turn);
  };
  // Loads kernels and tunes.
  TROUPE_TRY([[maybe_unused]] const double first, seconds_of([&] { several(2); }));
  TROUPE_TRY(const double tried, seconds_of([&] { several(trial); }));
  const double wanted = seconds_ / runs / (tried / trial);
  const auto count = static_cast<std::size_t>(std::clamp(wanted, 1.0, double{most}));
  std::unique_ptr<CapturedGraph> graph;
  if (records_ && capturable) {
    TROUPE_TRY(graph, ops_.stream().capture([&]() -> Result<void> {
      several(count);
      return {};
    }));
    TROUPE_TRY([[maybe_unused]] const double first_replay,
               seconds_of([&] { ops_.stream().replay(*graph); }));
  }
  std::array<double, runs> times{};
  for (double& time : times) {
    TROUPE_TRY(const double whole, seconds_of([&] {
                 graph != nullptr ? ops_.stream().replay(*graph) : several(count);
               }));
    time = whole / static_cast<double>(count);
  }
  std::ranges::nth_element(times, times.begin() + runs / 2);
  return times[runs / 2];
}

}  // namespace troupe
