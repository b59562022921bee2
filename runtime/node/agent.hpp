#pragma once

namespace troupe {

/// The life of an agent process: reads its NodeTicket from stdin, dials the driver, is given the
/// job's secret, starts, watches, pings and ends actor processes as told, and keeps the node's
/// shared memory. Ends when told, when stdin ends or when the driver is lost, and then takes all
/// actor processes with it. Returns the exit code. Runs on the main thread, which forks all
/// children.
int run_agent();

}  // namespace troupe
