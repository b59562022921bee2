#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// The life of an agent process: reads its NodeTicket from stdin, dials the driver, is given the
/// job's secret, starts, watches, pings and ends actor processes as told, and keeps the node's
/// shared memory. Ends when told, when stdin ends or when the driver is lost, and then takes all
/// actor processes with it. Returns the exit code. Runs on the main thread; one of its own
/// forks all children.
int run_agent();

/// Where an agent that nobody has sent a ticket joins its job.
struct JoinTarget {
  std::string host;  ///< the driver's, an address or a name
  std::uint16_t port = 0;
  std::string token_file;                     ///< see read_join_token
  std::chrono::milliseconds patience{10000};  ///< for the driver to be there
};

/// The same for an agent that joins by a token. Its node is named by the driver, after this host.
/// It and its processes log to stderr. SIGINT, SIGTERM and SIGHUP end it and its processes.
int run_joining_agent(const JoinTarget& target);

}  // namespace troupe
