#pragma once

#include <cstdint>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Calls use with a value of an unsigned type of the dtype's size, as which the elements of a KV
/// cache are copied.
template <class Use>
void with_elements(DType stored, const Use& use) {
  switch (size_of(stored)) {
    case 4:
      return use(std::uint32_t());
    case 2:
      return use(std::uint16_t());
    default:
      return use(std::uint8_t());
  }
}

}  // namespace troupe
