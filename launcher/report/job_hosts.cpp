#include "launcher/report/job_hosts.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/report/job_recorder.hpp"
#include "launcher/report/json_numbers.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;

constexpr const char* launcher_name = "launcher";

std::string name_of(const JobHosts& hosts, const std::string& address) {
  const auto found = std::ranges::find(hosts.hosts, address, &JobHosts::Host::address);
  return found == hosts.hosts.end() ? launcher_name : found->name;
}

/// Bytes by sender and receiver. Each connection is counted at the end that sends.
std::map<std::pair<std::string, std::string>, std::uint64_t> bytes_of_links(
    const JobHosts& hosts, const std::vector<ProcessTelemetry>& processes) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> bytes;
  for (const ProcessTelemetry& process : processes) {
    for (const TcpTraffic& traffic : process.traffic) {
      bytes[{name_of(hosts, traffic.local), name_of(hosts, traffic.peer)}] += traffic.sent_bytes;
    }
  }
  return bytes;
}

/// The mean times of a host's ranks.
RankUse mean_use(const JobHosts::Host& host, const std::vector<ProcessTelemetry>& processes) {
  RankUse sum;
  int ranks = 0;
  for (const ProcessTelemetry& process : processes) {
    if (process.role != ProcessRole::worker) continue;
    if (std::ranges::find(host.ranks, process.index) == host.ranks.end()) continue;
    const RankUse use = use_of(process);
    sum.computing += use.computing;
    if (use.exchanging) sum.exchanging = sum.exchanging.value_or(0) + *use.exchanging;
    if (use.stages) sum.stages = sum.stages.value_or(0) + *use.stages;
    sum.waiting += use.waiting;
    sum.rest += use.rest;
    ++ranks;
  }
  if (ranks == 0) return sum;
  sum.computing /= ranks;
  if (sum.exchanging) *sum.exchanging /= ranks;
  if (sum.stages) *sum.stages /= ranks;
  sum.waiting /= ranks;
  sum.rest /= ranks;
  return sum;
}

ordered_json rounded_or_null(const std::optional<double>& value) {
  return value ? ordered_json(rounded(*value)) : ordered_json(nullptr);
}

}  // namespace

ordered_json hosts_json(const JobHosts& hosts, const std::vector<ProcessTelemetry>& processes) {
  const auto bytes = bytes_of_links(hosts, processes);
  ordered_json all = ordered_json::array();
  for (const JobHosts::Host& host : hosts.hosts) {
    const RankUse use = mean_use(host, processes);
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const auto& [ends, amount] : bytes) {
      if (ends.first == host.name) sent += amount;
      if (ends.second == host.name) received += amount;
    }
    all.push_back({{"host", host.name},
                   {"address", host.address},
                   {"ranks", host.ranks},
                   {"computing_seconds", rounded(use.computing)},
                   {"exchange_seconds", rounded_or_null(use.exchanging)},
                   {"stage_seconds", rounded_or_null(use.stages)},
                   {"waiting_seconds", rounded(use.waiting)},
                   {"other_seconds", rounded(use.rest)},
                   {"sent_bytes", sent},
                   {"received_bytes", received}});
  }
  return all;
}

ordered_json links_json(const JobHosts& hosts, const std::vector<ProcessTelemetry>& processes) {
  ordered_json all = ordered_json::array();
  if (hosts.hosts.empty()) return all;
  const auto bytes = bytes_of_links(hosts, processes);
  std::vector<std::pair<std::uint64_t, std::pair<std::string, std::string>>> by_size;
  for (const auto& [ends, amount] : bytes) by_size.emplace_back(amount, ends);
  double seconds = 0;
  for (const ProcessTelemetry& process : processes) {
    if (process.traffic.empty()) continue;
    seconds = std::max(seconds, static_cast<double>(process.now_ns - process.since_ns) * 1e-9);
  }
  std::ranges::sort(by_size, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [amount, ends] : by_size) {
    const auto measured = std::ranges::find_if(hosts.links, [&](const JobHosts::Link& link) {
      return link.from == ends.first && link.to == ends.second && link.bytes_per_second > 0;
    });
    const bool is_measured = measured != hosts.links.end();
    const auto value = static_cast<double>(amount);
    all.push_back(
        {{"from", ends.first},
         {"to", ends.second},
         {"bytes", amount},
         {"bytes_per_second", seconds > 0 ? rounded(value / seconds) : 0},
         {"measured_bytes_per_second",
          is_measured ? ordered_json(rounded(measured->bytes_per_second)) : ordered_json()},
         {"seconds_at_that_rate",
          is_measured ? ordered_json(rounded(value / measured->bytes_per_second)) : ordered_json()},
         {"latency_ms",
          is_measured ? ordered_json(rounded(1e3 * measured->latency_seconds)) : ordered_json()}});
  }
  return all;
}

}  // namespace troupe
