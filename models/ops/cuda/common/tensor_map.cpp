#include "models/ops/cuda/common/tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace troupe {
namespace {

constexpr unsigned driver_version = 12000;

/// Null if the driver has no such function.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult there{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, driver_version, cudaEnableDefault, &there);
    if (error != cudaSuccess || there != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

}  // namespace

bool make_tensor_map(const TiledTensor& tensor, CUtensorMap& map) {
  const auto encode = encoder();
  if (encode == nullptr) return false;
  std::array<std::uint64_t, 4> stride_bytes{};
  for (std::size_t i = 0; i < stride_bytes.size(); ++i) {
    stride_bytes[i] = tensor.element_bytes * tensor.strides[i];
  }
  constexpr std::array<std::uint32_t, 5> every_element{1, 1, 1, 1, 1};
  const CUtensorMapDataType type = tensor.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : tensor.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                               : CU_TENSOR_MAP_DATA_TYPE_UINT64;
  return encode(&map, type, 5, const_cast<void*>(tensor.data), tensor.sizes.data(),
                stride_bytes.data(), tensor.box.data(), every_element.data(),
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                tensor.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace troupe
