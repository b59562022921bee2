#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "actors/telemetry/process_telemetry.hpp"

namespace troupe {

/// The nodes of a job that are other machines, as its report names them.
struct JobHosts {
  struct Host {
    std::string name;
    std::string address;  ///< numeric
    std::vector<int> ranks;
  };
  /// A link between two of them as preflight has measured it.
  struct Link {
    std::string from;
    std::string to;
    double latency_seconds = 0;
    double bytes_per_second = 0;
  };
  std::vector<Host> hosts;
  std::vector<Link> links;
};

/// The report's "hosts": of each its ranks, the mean of their times, and what all its processes
/// sent and received. An address that is no host's is the launcher's.
nlohmann::ordered_json hosts_json(const JobHosts& hosts,
                                  const std::vector<ProcessTelemetry>& processes);

/// The report's "links": of each pair of hosts in one direction what was sent, how fast while the
/// processes served, and what preflight had measured; most bytes first.
nlohmann::ordered_json links_json(const JobHosts& hosts,
                                  const std::vector<ProcessTelemetry>& processes);

}  // namespace troupe
