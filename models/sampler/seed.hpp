#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// The seed of a request that brings none: FNV-1a (64 bits) over the eight bytes of `job_seed`,
/// least significant first, and the bytes of `custom_id`, then the finaliser of SplitMix64 (which
/// spreads the little that two similar names differ over all bits). Part of what an answer depends
/// on: it must never change.
std::uint64_t seed_for(std::uint64_t job_seed, std::string_view custom_id);

}  // namespace troupe
