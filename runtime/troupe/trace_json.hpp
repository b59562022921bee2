#pragma once

#include <string>
#include <vector>

#include "runtime/state/messages.hpp"

namespace troupe {

/// What one process has recorded.
struct ProcessTrace {
  TimelinePlace place;
  Timeline timeline;
};

/// Returns recorded calls as Chrome trace events (the "Trace Event Format", JSON object form),
/// which Perfetto and chrome://tracing open, on the driver's clock from the first event on. For
/// each process: a row for each actor with the calls that it ran, as complete events (of an actor
/// that runs several at once: as many rows as that takes), those of a coroutine in the parts
/// between its waits; the times of each call in the mailbox ("queued") and in a coroutine's waits
/// ("suspended") as asynchronous events; a row for each thread that made calls outside of actors. A
/// flow goes from where a call was made to where it ran, for calls of which both are known. Where a
/// process has overwritten older events, all begin where its own do.
std::string trace_json(const std::vector<ProcessTrace>& processes);

}  // namespace troupe
