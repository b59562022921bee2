#include "runtime/actor/last_words.hpp"

#include <fstream>

namespace troupe {
namespace {

/// "srun: error: n1: task 0: Exited with exit code 1" and the like tell nothing of the cause.
bool is_of_srun(const std::string& line) {
  return line.starts_with("srun: error:") || line.starts_with("srun: Terminating");
}

}  // namespace

std::string last_words(const std::string& log_path) {
  constexpr std::size_t longest = 300;
  std::ifstream file(log_path);
  std::string said, of_srun;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    (is_of_srun(line) ? of_srun : said) = std::move(line);
  }
  return (said.empty() ? of_srun : said).substr(0, longest);
}

std::string remedy_for_unreached_driver(const std::string& said) {
  if (said.find("cannot reach the driver") == said.npos) return "";
  return "let it reach this machine (open TCP on cluster.ports), or set cluster.network to the "
         "interface or address of this machine that the hosts reach";
}

}  // namespace troupe
