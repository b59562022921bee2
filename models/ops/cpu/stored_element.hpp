#pragma once

#include <cstdint>
#include <cstring>

namespace troupe {

// Numbers as elements of index keys, f32 or the bits of bf16: rounded to the nearest, ties to even.

inline void narrow(float value, float& stored) { stored = value; }
inline void narrow(float value, std::uint16_t& stored) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  stored = static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace troupe
