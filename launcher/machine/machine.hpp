#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// The GPUs of one machine, all of one kind.
struct Gpus {
  int count = 0;
  std::uint64_t memory_bytes = 0;  ///< of each, in all; 0: not known
  bool assumed = false;            ///< somebody says so: they are not this machine's
};

/// What decides how a model is laid out on a machine.
struct Machine {
  int cores = 1;                        ///< logical ones
  std::uint64_t free_memory_bytes = 0;  ///< of the host; 0: not known
  Gpus gpus = {};
};

/// The machine that this process runs on; with other GPUs if some are assumed. Looks at its own,
/// which takes a part of a second, only if not.
Machine this_machine(const std::optional<Gpus>& assumed = std::nullopt);

/// The GPUs that this process can use and their memory; none if the part for GPUs is not there.
/// Takes a part of a second.
Gpus find_gpus();

/// Reads "H200:8", "80GB:4" or "none": a kind that this version runs on or the memory of each, and
/// how many (without it, one). Errors: invalid_argument with what is known; unsupported for a kind
/// before Hopper.
Result<Gpus> parse_gpus(std::string_view text);

}  // namespace troupe
