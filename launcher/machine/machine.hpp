#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// The GPUs of one machine, all of one kind.
struct Gpus {
  int count = 0;
  std::uint64_t memory_bytes = 0;  ///< total, of each; 0: not known
  bool assumed = false;            ///< given by the user: they are not this machine's
};

/// The properties that decide a model's layout on a machine.
struct Machine {
  int cores = 1;                        ///< logical cores
  std::uint64_t free_memory_bytes = 0;  ///< of the host; 0: not known
  Gpus gpus = {};
};

/// The machine that this process runs on, with assumed GPUs if given; otherwise it queries its own,
/// which takes part of a second.
Machine this_machine(const std::optional<Gpus>& assumed = std::nullopt);

/// The GPUs that this process can use and their memory; none if the CUDA part is missing. Takes
/// part of a second.
Gpus find_gpus();

/// Reads "H200:8", "80GB:4" or "none": a supported kind or the memory of each, and the count
/// (default one). Errors: invalid_argument with what is known; unsupported for a kind before
/// Hopper.
Result<Gpus> parse_gpus(std::string_view text);

}  // namespace troupe
