#pragma once

#include <array>
#include <cstdint>

#include <cuda.h>

namespace troupe {

/// A five-dimensional tensor of bf16, of bytes or of eight bytes, the fastest dimension first, and
/// the box of it that one copy takes.
struct TiledTensor {
  const void* data = nullptr;  ///< device memory, a multiple of 16
  std::array<std::uint64_t, 5> sizes{};
  std::array<std::uint64_t, 4>
      strides{};                       ///< of dimensions 1.., in elements: multiples of 16 bytes
  std::array<std::uint32_t, 5> box{};  ///< the first is 128 bytes if swizzled
  bool swizzled = true;
  std::uint64_t element_bytes = 2;  ///< 2: bf16; 1 or 8: bytes
};

/// Encodes the tensor map with which the copy engine copies boxes to shared memory, filling zeros
/// outside the tensor. If swizzled, each row of 128 bytes permutes its units of 16 as in
/// tile_descriptor (ptx_sm90.cuh). False if the driver lacks the function or refuses.
bool make_tensor_map(const TiledTensor& tensor, CUtensorMap& map);

}  // namespace troupe
