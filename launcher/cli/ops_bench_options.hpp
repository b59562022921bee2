#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/part_bench_options.hpp"

namespace troupe {

/// What `launcher bench ops` times.
struct OpsBenchOptions : PartBenchOptions {
  std::vector<std::int64_t> rows = {1, 8, 64, 256, 4096};  ///< tokens of a pass, ascending
  std::int64_t context = 512;  ///< tokens of each sequence, the newest included
  double seconds = 0.05;       ///< about how long each operation is timed for
};

/// Reads the arguments that follow `bench ops`. Help and mistakes come back as with
/// `parse_command_line`.
std::variant<OpsBenchOptions, EarlyExit> parse_ops_bench_options(
    std::span<const std::string> arguments);

/// What `launcher bench ops --help` prints.
std::string ops_bench_help_text();

}  // namespace troupe
