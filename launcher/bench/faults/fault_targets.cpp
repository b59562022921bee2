#include "launcher/bench/faults/fault_targets.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "actors/telemetry/distribution.hpp"

namespace troupe {
namespace {

using Kind = FaultKind;
using Member = std::optional<double> FaultRecord::*;

struct Target {
  std::string_view what;
  std::string_view unit;
  double limit;
  bool is_of_p95;
  std::initializer_list<Kind> kinds;
  Member took;
};

const Target all_targets[] = {
    {"killed: noticed",
     "ms",
     50,
     true,
     {Kind::worker, Kind::executor, Kind::agent, Kind::node},
     &FaultRecord::noticed_ms},
    {"stopped: noticed", "ms", 2000, false, {Kind::stop, Kind::freeze}, &FaultRecord::noticed_ms},
    {"link cut: noticed", "ms", 2000, false, {Kind::link}, &FaultRecord::noticed_ms},
    {"link cut: next step", "s", 6, false, {Kind::link}, &FaultRecord::next_step_seconds},
    {"killed worker: next step", "s", 2, false, {Kind::worker}, &FaultRecord::next_step_seconds},
};

}  // namespace

std::vector<FaultTarget> fault_targets(std::span<const FaultRecord> faults) {
  std::vector<FaultTarget> targets;
  for (const Target& target : all_targets) {
    std::vector<double> took;
    for (const FaultRecord& fault : faults) {
      const bool is_of_it = std::ranges::count(target.kinds, fault.kind) > 0;
      if (is_of_it && fault.*target.took) took.push_back(*(fault.*target.took));
    }
    if (took.empty()) continue;
    const Distribution of = distribution_of(took);
    targets.push_back({.what = target.what,
                       .unit = target.unit,
                       .limit = target.limit,
                       .is_of_p95 = target.is_of_p95,
                       .p50 = of.p50,
                       .p95 = of.p95,
                       .most = std::ranges::max(took)});
  }
  return targets;
}

}  // namespace troupe
