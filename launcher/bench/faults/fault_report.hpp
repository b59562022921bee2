#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/bench/faults/fault_figures.hpp"

namespace troupe {

/// The heading of the lines of faults, and a fault as one of them; at most 79 columns, without a
/// newline. `number` counts from 1.
std::string fault_heading();
std::string fault_line(std::size_t number, const FaultRecord& fault);

/// A step domain that was dropped or is back, as such a line.
std::string domain_line(const DomainRecord& record);

/// Tables for a person, at most 79 columns: times by kind, what was computed again, memory, step
/// domains, and whether all answers are the bytes of the undisturbed run.
std::string to_table(const FaultFigures& figures);

/// The same for programs, with all faults.
nlohmann::ordered_json to_json(const FaultFigures& figures);

}  // namespace troupe
