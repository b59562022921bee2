#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe {

/// A 128-bit hash of `text`, the same on every machine and in every version: answer ids and derived
/// seeds depend on it. Not cryptographic. Two lanes of multiply-and-fold over 8 bytes at a time
/// (the construction of wyhash, Wang Yi 2019), each finished with the mixer of SplitMix64 (Steele,
/// Lea, Flood 2014).
std::pair<std::uint64_t, std::uint64_t> hash_128(std::string_view text, std::uint64_t seed = 0);

}  // namespace troupe
