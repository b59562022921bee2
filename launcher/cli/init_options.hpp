#pragma once

#include <span>
#include <string>
#include <variant>

#include "launcher/cli/command_line.hpp"

namespace troupe {

/// What `launcher init` is to write.
struct InitOptions {
  std::string model = {};               ///< the checkpoint's folder; empty: the demo's
  std::string output = "cluster.yaml";  ///< the file; "-": standard output
};

/// Reads the arguments that follow `init`. Help and mistakes come back as with
/// `parse_command_line`.
std::variant<InitOptions, EarlyExit> parse_init_options(std::span<const std::string> arguments);

/// What `launcher init --help` prints.
std::string init_help_text();

}  // namespace troupe
