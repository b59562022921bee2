#include "launcher/report/precision_json.hpp"

#include <cstdint>
#include <map>
#include <string>

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
  const JobFacts& facts = job.facts();
  return {{"dtype", facts.dtype},
          {"quantization", facts.quantization},
          {"kv_cache", facts.kv_dtype},
          {"kernels", std::move(kernels)}};
}

}  // namespace troupe
