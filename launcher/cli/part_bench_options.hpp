#pragma once

#include <string>
#include <string_view>

#include "launcher/cli/config_arguments.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// What the benches of one part of the engine have in common: `launcher bench ops`, `collectives`
/// and `weights`.
struct PartBenchOptions {
  ConfigSource config;
  std::string json_path;  ///< where all figures go too; empty: nowhere
};

/// The arguments of which these options are made.
class PartBenchArguments {
 public:
  void declare(CLI::App& app);
  Result<PartBenchOptions> judge() const;

 private:
  ConfigArguments config_;
  std::string json_path_;
};

}  // namespace troupe
