#include "launcher/report/precision_json.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "launcher/report/json_numbers.hpp"

namespace troupe {

using nlohmann::ordered_json;

ordered_json precision_json(const JobRecorder& job,
                            const std::vector<ProcessTelemetry>& processes) {
  // Lines are those of KernelTable: "KERNEL: matrices and their layers".
  std::map<std::string, std::vector<std::int32_t>> ranks_of_lines;
  for (const ProcessTelemetry& process : processes) {
    for (const std::string& line : process.kernels) ranks_of_lines[line].push_back(process.index);
  }
  ordered_json kernels = ordered_json::array();
  for (const auto& [line, ranks] : ranks_of_lines) {
    const std::size_t end = line.find(": ");
    kernels.push_back({{"kernel", line.substr(0, end)},
                       {"matrices", end == std::string::npos ? "" : line.substr(end + 2)},
                       {"ranks", ranks}});
  }
  ordered_json fallen = ordered_json::array();
  for (const auto& [domain, of] : job.widened()) {
    fallen.push_back(
        {{"domain", domain},
         {"layer", of.layer},
         {"largest", std::isfinite(of.largest) ? ordered_json(rounded(of.largest)) : nullptr},
         {"rank", of.rank},
         {"step", of.step}});
  }
  const JobFacts& facts = job.facts();
  return {{"dtype", facts.dtype},       {"quantization", facts.quantization},
          {"kv_cache", facts.kv_dtype}, {"kernels", std::move(kernels)},
          {"fallback", facts.fallback}, {"fallen_back", std::move(fallen)}};
}

}  // namespace troupe
