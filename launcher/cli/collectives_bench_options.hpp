#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/part_bench_options.hpp"

namespace troupe {

/// What `launcher bench collectives` times.
struct CollectivesBenchOptions : PartBenchOptions {
  /// Sizes of messages, ascending.
  std::vector<std::int64_t> bytes = {8,         64,      512,      4 << 10, 32 << 10,
                                     256 << 10, 2 << 20, 16 << 20, 64 << 20};
  double seconds = 0.05;  ///< about how long each size of a collective is timed for
};

/// Reads the arguments that follow `bench collectives`. Help and mistakes come back as with
/// `parse_command_line`.
std::variant<CollectivesBenchOptions, EarlyExit> parse_collectives_bench_options(
    std::span<const std::string> arguments);

/// What `launcher bench collectives --help` prints.
std::string collectives_bench_help_text();

}  // namespace troupe
