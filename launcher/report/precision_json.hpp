#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/report/job_recorder.hpp"

namespace troupe {

/// The "precision" of report.json: in what the model really computed, by what its workers told
/// last.
nlohmann::ordered_json precision_json(const JobRecorder& job,
                                      const std::vector<ProcessTelemetry>& processes);

}  // namespace troupe
