#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/child_process.hpp"

namespace troupe::test {

/// `main` of a program with a cluster: an actor on each of `hosts` hosts, or, with none, one on
/// this machine. It prints "ready", waits for a SIGTERM and ends in order. PROGRAM --observed
/// STATE_FOLDER LOG_FOLDER HOSTS
int run_observed_program(const std::vector<std::string>& arguments);

/// That program as a process, which has said that it is ready. Its cluster file is in
/// folder/clusters, its logs are in folder/logs.
class ObservedProgram {
 public:
  ObservedProgram(std::filesystem::path folder, int hosts);

  ChildProcess& process() { return process_; }
  std::string output() const;  ///< so far

 private:
  std::filesystem::path folder_;
  ChildProcess process_;
};

/// How `troupe` ended and what it printed.
struct Said {
  int code = -1;  ///< -1: killed, since it took too long
  std::string text;
  double seconds = 0;
};

/// Runs `PROGRAM WORDS --folder folder/clusters` on the host, in a namespace of processes of its
/// own, as on a machine that shares nothing with this one but the files. Host 0 is this machine.
Said troupe_on_host(int host, const std::filesystem::path& folder, std::vector<std::string> words,
                    std::string_view program);

}  // namespace troupe::test
