#pragma once

#include <cstdint>
#include <cstring>

namespace troupe {

// Elements of the KV cache, f32 or the bits of bf16, as numbers.

inline float widened(float value) { return value; }
inline float widened(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float wide = 0.0F;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/// Rounds to the nearest, ties to even.
inline void narrow(float value, float& stored) { stored = value; }
inline void narrow(float value, std::uint16_t& stored) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  stored = static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace troupe
