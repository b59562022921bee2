#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/cli/run_options.hpp"
#include "launcher/machine/machine.hpp"

namespace troupe {

/// What `launcher check` is to look at.
struct CheckOptions {
  RunOptions run;  ///< of the job that is checked
  /// The GPUs of the machine that the job is meant for; none: those of this one.
  std::optional<Gpus> assumed_gpus;
};

/// The arguments of `launcher check`: those of a run, which it refuses alike, and --assume-gpu.
class CheckArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<CheckOptions> judge() const;

 private:
  RunArguments run_;
  std::string assumed_gpus_;
};

/// Declares --assume-gpu; pass the value, which may be empty, to assumed_gpus.
void declare_assumed_gpus(CLI::App& app, std::string& value);
Result<std::optional<Gpus>> assumed_gpus(const std::string& value);

}  // namespace troupe
