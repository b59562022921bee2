#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/process/child_process.hpp"

namespace troupe::launcher_test {

class LauncherJob;

void write_token(const std::filesystem::path& file, char digit, bool is_private = true);

/// `launcher agent`, started on a host by ssh. It joins the launcher at listen_at.
class JoiningAgent {
 public:
  /// `token`: the name of a file in the job's folder; empty `program`: `launcher agent`.
  JoiningAgent(const LauncherJob& job, int host, const std::string& token,
               const std::string& program = {});

  /// Its exit code; -1 if it does not end.
  int wait();
  /// What it has printed, and how it has ended, if it has.
  std::string log();

 private:
  std::filesystem::path log_;
  std::optional<ChildProcess> process_;
};

}  // namespace troupe::launcher_test
