#pragma once

#include <cstddef>
#include <vector>

#include "actors/api/report.hpp"

namespace troupe {

/// Splits `report` into parts whose completions take at most `max_bytes` in a message, or are a
/// single one. Everything else goes with the first part, except the stats, which all parts have,
/// and the progress, which goes with the last: it follows from answers that have left room for
/// others. A completion of more than max_completion_bytes becomes an error, `answer_too_large`.
std::vector<EngineReport> split_report(EngineReport report, std::size_t max_bytes);

}  // namespace troupe
