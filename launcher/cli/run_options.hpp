#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/config_arguments.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

/// What `launcher run` is to do.
struct RunOptions {
  ConfigSource config;        ///< --input, --output and --resume are overrides of it
  bool overwrite = false;     ///< an output file that has content may be replaced
  bool resume_asked = false;  ///< a job that cannot be gone on with is refused
  /// Error lines of earlier runs that are asked again: of these codes, all if there are none.
  std::optional<std::vector<std::string>> retry_errors = {};
  bool quiet = false;             ///< no progress; errors still go to stderr
  bool json_progress = false;     ///< progress as JSON lines, for programs
  std::int64_t show_answers = 0;  ///< how many answers to print on stdout at the end
  log::Level log_level = log::Level::info;
};

/// The arguments of `launcher run` before they are judged.
class RunArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<RunOptions> judge() const;

 private:
  ConfigArguments config_;
  std::vector<std::string> inputs_, outputs_;
  std::string log_level_ = "info";
  std::string resume_;
  std::string retry_errors_;
  bool overwrite_ = false;
  bool quiet_ = false;
  bool json_progress_ = false;
  std::int64_t show_answers_ = 0;
};

}  // namespace troupe
