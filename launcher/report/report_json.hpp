#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/report/job_recorder.hpp"

namespace troupe {

/// The number in the report's "format"; raised when a field changes its meaning.
inline constexpr int report_format = 2;

/// Returns the content of report.json for a finished job; docs/operations.md lists the fields.
/// Unknown values are null.
nlohmann::ordered_json report_json(const JobRecorder& job);

/// The report as text; invalid UTF-8 is replaced.
std::string to_text(const nlohmann::ordered_json& report);

/// "finished", "finished with error lines", "failed", "drained", "interrupted".
std::string_view to_string(JobOutcome outcome);

}  // namespace troupe
