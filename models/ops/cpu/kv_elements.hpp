#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Calls use with a value of an unsigned type of the dtype's size, as which the elements of a KV
/// cache are copied.
template <class Use>
void with_elements(DType stored, const Use& use) {
  const std::size_t size = size_of(stored);
  if (size == sizeof(std::uint32_t)) return use(std::uint32_t());
  if (size == sizeof(std::uint16_t)) return use(std::uint16_t());
  use(std::uint8_t());
}

}  // namespace troupe
