#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/config_arguments.hpp"

namespace troupe {

/// The options of `launcher submit`.
struct SubmitOptions {
  ConfigSource config;
  int array = 0;                    ///< tasks that share out the input; 0: one job
  bool dry_run = false;             ///< print the script, submit nothing
  std::vector<std::string> sbatch;  ///< sbatch's own options
};

/// The arguments of `launcher submit`: the topology, the files, and sbatch's own after "--".
class SubmitArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<SubmitOptions> judge() const;

 private:
  ConfigArguments config_;
  FileArguments files_;
  std::vector<std::string> sbatch_;
  int array_ = 0;
  bool dry_run_ = false;
};

}  // namespace troupe
