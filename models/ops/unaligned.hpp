#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe {

/// Element `i` of an array of T, at any address: tensors of checkpoints need not be aligned.
template <class T>
T load_unaligned(const void* array, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(array) + i * std::int64_t{sizeof value},
              sizeof value);
  return value;
}

}  // namespace troupe
