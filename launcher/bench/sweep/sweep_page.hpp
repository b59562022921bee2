#pragma once

#include <string>

#include "launcher/bench/sweep/sweep.hpp"

namespace troupe {

/// Returns the plots of a sweep as one self-contained HTML page. `heading`: what was measured, from
/// bench_heading.
std::string sweep_page(const SweepFigures& figures, const std::string& heading);

}  // namespace troupe
