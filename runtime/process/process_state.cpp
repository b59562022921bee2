#include "runtime/process/process_state.hpp"

#include <fstream>

#include <fmt/format.h>

namespace troupe {
namespace {

/// The value of a line "name:\tvalue".
std::string value_of(const std::string& line) {
  const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
  return begin == std::string::npos ? "" : line.substr(begin);
}

}  // namespace

std::string describe_process_state(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  std::string state;
  std::string tracer;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) state = value_of(line);
    if (line.starts_with("TracerPid:")) tracer = value_of(line);
  }
  if (state.empty()) return "no such process";
  std::string text = "state " + state;
  std::string where;  // "0" in a process that runs, or for whom that is not to be seen
  std::ifstream(fmt::format("/proc/{}/wchan", pid)) >> where;
  if (!where.empty() && where != "0") text += ", in " + where;
  if (!tracer.empty() && tracer != "0") text += ", traced by process " + tracer;
  return text;
}

}  // namespace troupe
