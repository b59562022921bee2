#pragma once

#include <string>

#include "launcher/bench/sweep/sweep.hpp"

namespace troupe {

/// The plots of a sweep as one HTML page that needs nothing else. `heading`: what was measured, as
/// bench_heading tells it.
std::string sweep_page(const SweepFigures& figures, const std::string& heading);

}  // namespace troupe
