#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/report/job_recorder.hpp"

namespace troupe {

/// The number in the report's "format"; raised when a field changes its meaning.
inline constexpr int report_format = 2;

/// What report.json holds of a finished job; docs/operations.md lists the fields. What is not known
/// is null.
nlohmann::ordered_json report_json(const JobRecorder& job);

/// As text; bytes that are no UTF-8 are replaced.
std::string to_text(const nlohmann::ordered_json& report);

/// "finished", "finished with error lines", "failed", "drained", "interrupted".
std::string_view to_string(JobOutcome outcome);

}  // namespace troupe
