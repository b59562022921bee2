#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/bench/sweep/sweep.hpp"

namespace troupe {

/// "4" or "2.5/s": the name of a load in tables and plots.
std::string load_name(const SweepOptions& options, double load);

/// A table for people, at most 79 columns: for each load a line with the work done and one with the
/// times.
std::string to_table(const SweepFigures& figures);

/// The same for programs; an infinite rate is the text "inf".
nlohmann::ordered_json to_json(const SweepFigures& figures);

}  // namespace troupe
