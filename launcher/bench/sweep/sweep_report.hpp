#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/bench/sweep/sweep.hpp"

namespace troupe {

/// "4" or "2.5/s": a load as tables and plots name it.
std::string load_name(const SweepOptions& options, double load);

/// A table for a person, at most 79 columns: a line a load for what was done, and one for how long
/// it took.
std::string to_table(const SweepFigures& figures);

/// The same for programs; an infinite rate is the text "inf".
nlohmann::ordered_json to_json(const SweepFigures& figures);

}  // namespace troupe
