#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// `launcher reference` has no options.
struct ReferenceOptions {};

/// The arguments of `launcher reference`.
class ReferenceArguments {
 public:
  std::string_view summary() const {
    return "Prints the reference of all YAML keys, docs/configuration.md.";
  }
  std::string details() const { return {}; }
  void declare(CLI::App&) {}
  Result<ReferenceOptions> judge() const { return ReferenceOptions{}; }
};

}  // namespace troupe
