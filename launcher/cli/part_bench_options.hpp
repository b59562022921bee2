#pragma once

#include <string>
#include <string_view>

#include "launcher/cli/config_arguments.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// Options common to the benches of one part of the engine: `launcher bench ops`, `collectives` and
/// `weights`.
struct PartBenchOptions {
  ConfigSource config;
  std::string json_path;  ///< output file for all figures; empty: none
};

/// The command-line arguments for these options.
class PartBenchArguments {
 public:
  void declare(CLI::App& app);
  Result<PartBenchOptions> judge() const;

 private:
  ConfigArguments config_;
  std::string json_path_;
};

}  // namespace troupe
