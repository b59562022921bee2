#pragma once

#include <string>

#include <fmt/format.h>

namespace troupe {

/// Where the logs of a job's processes arrive.
struct LogPlaces {
  std::string folder;         ///< empty: nowhere that the driver knows of
  bool one_for_node = false;  ///< what processes of a node log arrives with the agent's

  /// The path of an agent's log; empty if there is none.
  std::string of_agent(const std::string& node) const { return path("agent-" + node); }
  /// The same of an actor process.
  std::string of_process(const std::string& process, const std::string& node) const {
    return one_for_node ? of_agent(node) : path(process);
  }

 private:
  std::string path(const std::string& name) const {
    return folder.empty() ? "" : fmt::format("{}/{}.log", folder, name);
  }
};

}  // namespace troupe
