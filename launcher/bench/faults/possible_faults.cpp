#include "launcher/bench/faults/possible_faults.hpp"

#include <algorithm>

namespace troupe {
namespace {

using Kind = FaultKind;

bool has(const std::vector<Kind>& kinds, Kind kind) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

}  // namespace

Result<PossibleFaults> possible_faults(const FaultOptions& options, const JobPlan& plan) {
  if (plan.engine.device != DeviceKind::cpu && !plan.engine.deterministic) {
    return fail(ErrorCode::invalid_argument,
                "on GPUs answers depend on the requests beside them, so they cannot be compared: "
                "set engine.deterministic: true");
  }
  const std::string& launch = plan.config.cluster.launch;
  PossibleFaults possible{options.kinds, ""};
  if (possible.kinds.empty()) {
    possible.kinds = {Kind::worker, Kind::executor, Kind::stop};
    // Nobody starts agents again that came by themselves, and a single local node has no others.
    if (launch == "ssh" || launch == "slurm") {
      possible.kinds.insert(possible.kinds.end(), {Kind::agent, Kind::node, Kind::freeze});
    }
  }
  if (has(possible.kinds, Kind::link) && (launch == "local" || plan.computes_here)) {
    return fail(ErrorCode::invalid_argument,
                "--kinds link: the only node is this machine, which needs no link");
  }
  if (has(possible.kinds, Kind::hang) && plan.engine.device != DeviceKind::cpu) {
    return fail(ErrorCode::invalid_argument,
                "--kinds hang: on GPUs a step that hangs is noticed only after 10 min");
  }
  if (launch == "join" && std::ranges::any_of(possible.kinds, takes_node)) {
    possible.note = fmt::format(
        "each lost node waits at most {} s (restart.wait_seconds) for an agent that joins in its "
        "place: start launcher agent again where it ends",
        plan.config.restart.wait_seconds);
  }
  return possible;
}

}  // namespace troupe
