#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/cli/run_options.hpp"
#include "launcher/machine/machine.hpp"

namespace troupe {

/// The options of `launcher check`.
struct CheckOptions {
  RunOptions run;  ///< of the job to check
  /// The GPUs of the machine that the job is meant for; none: those of this one.
  std::optional<Gpus> assumed_gpus;
};

/// The arguments of `launcher check`: those of a run, with the same refusals, and --assume-gpu.
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
