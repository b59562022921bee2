#include <algorithm>

#include "models/ops/cuda/attention/padded_heads.hpp"

namespace troupe {
namespace {

constexpr int threads = 256, most_blocks = 4096;

/// Extents in units of 16 bytes.
__global__ void resize(const uint4* rows, std::int64_t count, int from, uint4* resized, int to) {
  const std::int64_t step = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count * to;
       i += step) {
    const std::int64_t row = i / to;
    const int unit = static_cast<int>(i - row * to);
    resized[i] = unit < from ? rows[row * from + unit] : uint4{};
  }
}

}  // namespace

cudaError_t resize_rows(const __nv_bfloat16* rows, std::int64_t count, std::int64_t from,
                        __nv_bfloat16* resized, std::int64_t to, cudaStream_t stream) {
  const std::int64_t units = count * to / 8;
  const auto blocks = std::min<std::int64_t>((units + threads - 1) / threads, most_blocks);
  resize<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(
      reinterpret_cast<const uint4*>(rows), count, static_cast<int>(from / 8),
      reinterpret_cast<uint4*>(resized), static_cast<int>(to / 8));
  return cudaPeekAtLastError();
}

}  // namespace troupe
