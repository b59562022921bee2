#pragma once

#include <array>
#include <cstdint>

#include <cuda.h>

namespace troupe {

/// A tensor of bf16 of five dimensions, the fastest first, and a box of it that is copied at once.
struct TiledTensor {
  const void* data = nullptr;  ///< device memory, a multiple of 16
  std::array<std::uint64_t, 5> sizes{};
  std::array<std::uint64_t, 4> strides{};  ///< of dimensions 1.., in elements, multiples of 8
  std::array<std::uint32_t, 5> box{};      ///< if swizzled the first is 64: 128 bytes
  bool swizzled = true;
};

/// What the copy engine needs to copy boxes to shared memory, zeros for what is outside of the
/// tensor. If swizzled, each row of 128 bytes exchanges its units of 16 as tile_descriptor
/// (ptx_sm90.cuh) says. False where the driver cannot say or refuses.
bool make_tensor_map(const TiledTensor& tensor, CUtensorMap& map);

}  // namespace troupe
