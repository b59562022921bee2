#pragma once

#include <nlohmann/json.hpp>

#include "actors/telemetry/distribution.hpp"
#include "actors/telemetry/distribution_sketch.hpp"

namespace troupe {

/// For numbers that people read: rounds to 6 significant digits, more than was measured. 0 for
/// values that are not finite.
double rounded(double value);

/// An object with "mean", "p50", "p95" and "p99", each times `unit`.
nlohmann::ordered_json distribution_json(const Distribution& of, double unit = 1);

/// The same for measurements in microseconds, converted to milliseconds and rounded; with "count",
/// "exact", "least", "most" and at most 48 "bins": [from, to, count].
nlohmann::ordered_json distribution_json(const DistributionSketch& of);

}  // namespace troupe
