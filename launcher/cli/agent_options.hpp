#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/config/host_port.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The options of `launcher agent`.
struct AgentOptions {
  HostPort join;
  std::string token_file = {};
  std::chrono::seconds patience{300};  ///< for the launcher to be there
};

/// The arguments of `launcher agent`.
class AgentArguments {
 public:
  std::string_view summary() const;
  std::string details() const;
  void declare(CLI::App& app);
  Result<AgentOptions> judge() const;

 private:
  AgentOptions options_;
  std::string join_;
  std::int64_t patience_seconds_ = 300;
};

}  // namespace troupe
