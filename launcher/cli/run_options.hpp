#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/config_arguments.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

/// The options of `launcher run`.
struct RunOptions {
  ConfigSource config;        ///< --input, --output and --resume override its keys
  bool overwrite = false;     ///< an existing output with content may be replaced
  bool resume_asked = false;  ///< refuse a job that cannot be resumed
  /// Retry error lines of earlier runs with these codes, or all if the list is empty.
  std::optional<std::vector<std::string>> retry_errors = {};
  bool quiet = false;             ///< no progress; errors still go to stderr
  bool json_progress = false;     ///< progress as JSON lines, for programs
  std::int64_t show_answers = 0;  ///< number of answers to print on stdout at the end
  log::Level log_level = log::Level::info;
};

/// The arguments of `launcher run`, unchecked.
class RunArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<RunOptions> judge() const;

 private:
  ConfigArguments config_;
  FileArguments files_;
  std::string log_level_ = "info";
  std::string resume_;
  std::string retry_errors_;
  bool overwrite_ = false;
  bool quiet_ = false;
  bool json_progress_ = false;
  std::int64_t show_answers_ = 0;
};

}  // namespace troupe
