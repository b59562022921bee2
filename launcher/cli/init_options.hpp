#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/machine/machine.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher init`.
struct InitOptions {
  std::string model = {};               ///< the checkpoint's folder; empty: the demo's
  std::string output = "cluster.yaml";  ///< the file; "-": standard output
  /// The GPUs of the machine that the file is meant for; none: those of this one.
  std::optional<Gpus> assumed_gpus = {};
  std::vector<std::string> hosts = {};  ///< that ssh reaches; empty: none
};

/// The arguments of `launcher init`.
class InitArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<InitOptions> judge() const;

 private:
  InitOptions options_;
  std::string assumed_gpus_;
};

}  // namespace troupe
