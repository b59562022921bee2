#pragma once

#include <cstddef>
#include <vector>

#include "actors/engine/report.hpp"

namespace troupe {

/// `report` in parts whose completions take at most `max_bytes` in a message each, or are one.
/// Whatever else it has comes with the first, but for the stats, which all have. A completion of
/// more than max_completion_bytes becomes an error, `answer_too_large`.
std::vector<EngineReport> split_report(EngineReport report, std::size_t max_bytes);

}  // namespace troupe
