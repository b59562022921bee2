#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/telemetry/process_telemetry.hpp"

namespace troupe {

/// The kept spans of all processes as Chrome trace events (the "Trace Event Format", JSON object
/// form), which Perfetto and chrome://tracing open: a row of its own for each process, in the order
/// driver, executors, ranks; one time line, whose zero is `origin_ns` on the launcher's clock. The
/// spans of a row are in the order of their beginnings.
/// Where a process has overwritten its older spans, those of the others begin where it begins.
///
/// `clock_offsets_ns` has what is to be added to the times of a process to have the launcher's, by
/// the process's place in `processes`; missing ones are 0: processes of one machine share a clock.
std::string trace_json(const std::vector<ProcessTelemetry>& processes, std::int64_t origin_ns,
                       const std::vector<std::int64_t>& clock_offsets_ns = {});

}  // namespace troupe
