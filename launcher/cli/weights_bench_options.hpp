#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/part_bench_options.hpp"

namespace troupe {

/// What `launcher bench weights` reads.
struct WeightsBenchOptions : PartBenchOptions {
  std::string make_folder;  ///< where a checkpoint of random numbers is written first; empty: none
  std::int64_t repeat = 3;
  bool cold = false;  ///< files are dropped from the page cache before they are read
};

/// Reads the arguments that follow `bench weights`. Help and mistakes come back as with
/// `parse_command_line`.
std::variant<WeightsBenchOptions, EarlyExit> parse_weights_bench_options(
    std::span<const std::string> arguments);

/// What `launcher bench weights --help` prints.
std::string weights_bench_help_text();

}  // namespace troupe
