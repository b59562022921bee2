#pragma once

#include <string>

#include "launcher/report/job_recorder.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Writes report.json, report.html and trace.json into the existing folder `folder`, each replacing
/// an older one only when it is whole. The job is finished. Errors: io with the file's name; the
/// other files are written nevertheless.
Result<void> write_reports(const JobRecorder& job, const std::string& folder);

}  // namespace troupe
