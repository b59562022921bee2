#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/telemetry/process_telemetry.hpp"

namespace troupe {

/// Returns the kept spans of all processes as Chrome trace events (the "Trace Event Format", JSON
/// object form), which Perfetto and chrome://tracing open: a row for each process, in the order
/// driver, executors, ranks; one time line, whose zero is `origin_ns` on the launcher's clock. The
/// spans of a row are ordered by their beginnings. If a process has overwritten its older spans,
/// those of the others are cut to begin where it begins.
///
/// `clock_offsets_ns`, by index into `processes`, is added to a process's times to get the
/// launcher's; missing ones are 0: processes of one machine share a clock.
std::string trace_json(const std::vector<ProcessTelemetry>& processes, std::int64_t origin_ns,
                       const std::vector<std::int64_t>& clock_offsets_ns = {});

}  // namespace troupe
