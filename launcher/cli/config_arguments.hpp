#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/cluster_config.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// Where a command's configuration comes from.
struct ConfigSource {
  std::string path;                 ///< the YAML; empty: none, the overrides name the model
  std::vector<Override> overrides;  ///< later ones win

  /// Errors: those of load_config.
  Result<Config> load(Purpose purpose) const;
};

/// --config, --model and --set: the options of every command that needs a topology.
class ConfigArguments {
 public:
  void declare(CLI::App& app);

  /// Errors: invalid_argument if neither a file nor a model is given, or one of them twice.
  Result<ConfigSource> judge() const;

 private:
  std::vector<std::string> configs_, models_, sets_;
};

/// --input and --output: the options of every command that is about a whole job.
class FileArguments {
 public:
  void declare(CLI::App& app);

  /// Adds those that are given to the overrides. Errors: those of given_once.
  Result<void> add_to(ConfigSource& source) const;

 private:
  std::vector<std::string> inputs_, outputs_;
};

/// Returns the value of an option that may be given once; none if it is not given. Errors:
/// invalid_argument if it is given more than once, or empty.
Result<std::optional<std::string>> given_once(std::string_view option,
                                              const std::vector<std::string>& values);

}  // namespace troupe
