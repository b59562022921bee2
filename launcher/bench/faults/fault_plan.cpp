#include "launcher/bench/faults/fault_plan.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace troupe {
namespace {

constexpr double longest_wait = 4;  ///< in means

/// In (0, 1]: 53 bits, so that the logarithm is finite.
double uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11U) + 1) / 9007199254740992.0;
}

/// The same permutation with every standard library (Fisher and Yates).
void shuffle(std::vector<FaultKind>& kinds, std::mt19937_64& random) {
  for (std::size_t i = kinds.size(); i > 1; --i) std::swap(kinds[i - 1], kinds[random() % i]);
}

}  // namespace

std::vector<PlannedFault> plan_faults(std::span<const FaultKind> kinds, std::int64_t count,
                                      double mean_seconds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<PlannedFault> faults;
  while (std::ssize(faults) < count) {
    // Each turn has every kind once, so that a run that is broken off has had some of all.
    std::vector<FaultKind> turn(kinds.begin(), kinds.end());
    shuffle(turn, random);
    for (const FaultKind kind : turn) {
      if (std::ssize(faults) == count) break;
      const double wait = std::min(-std::log(uniform(random)), longest_wait) * mean_seconds;
      faults.push_back({kind, wait, random()});
    }
  }
  return faults;
}

}  // namespace troupe
