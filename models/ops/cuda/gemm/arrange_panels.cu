#include <algorithm>

#include "models/ops/coded_panels.hpp"
#include "models/ops/cuda/gemm/arrange_panels.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int unit_words = static_cast<int>(panel_rows * unit_columns) / 4;

__device__ __forceinline__ bool is_nan(std::uint32_t code) { return (code & 0x7FU) == 0x7FU; }

/// Grid: units of panels, a thread for each four codes.
__global__ void __launch_bounds__(unit_words)
    arrange_panels(CodeKind kind, const std::uint8_t* codes, int k, int units, std::uint8_t* panels,
                   float* row_scales) {
  const int panel = static_cast<int>(blockIdx.x) / units,
            unit = static_cast<int>(blockIdx.x) % units;
  const int word = static_cast<int>(threadIdx.x);
  const int step = word / 128 * 4 + word % 4, lane = word % 128 / 4;
  const std::int64_t row = std::int64_t{8} * panel + lane / 4;
  const int column = unit * static_cast<int>(unit_columns) + 16 * step + 2 * (lane % 4);
  std::uint32_t four = 0;
  if (column < k) {
    const std::uint8_t* const from = codes + row * k + column;
    const std::uint32_t low = *reinterpret_cast<const std::uint16_t*>(from);
    const std::uint32_t high = *reinterpret_cast<const std::uint16_t*>(from + 8);
    // Bytes 0 and 2 are the first pair of columns, 1 and 3 the second.
    four = (low & 0xFFU) | (high & 0xFFU) << 8 | (low >> 8) << 16 | (high >> 8) << 24;
    const bool any_nan = is_nan(low) || is_nan(low >> 8) || is_nan(high) || is_nan(high >> 8);
    if (kind == CodeKind::e4m3 && any_nan) row_scales[row] = NAN;
  }
  reinterpret_cast<std::uint32_t*>(panels)[std::int64_t{blockIdx.x} * unit_words + word] = four;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_arrange_panels(CodeKind kind, const std::uint8_t* codes, std::int64_t rows,
                                  std::int64_t k, std::uint8_t* panels, float* row_scales,
                                  cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const std::int64_t units = (k + unit_columns - 1) / unit_columns;
  arrange_panels<<<static_cast<unsigned>(rows / panel_rows * units), unit_words, 0, stream>>>(
      kind, codes, static_cast<int>(k), static_cast<int>(units), panels, row_scales);
  return cudaPeekAtLastError();
}

cudaError_t launch_arrange_in_place(CodeKind kind, std::uint8_t* codes, std::int64_t rows,
                                    std::int64_t k, float* row_scales, void* room,
                                    std::int64_t room_bytes, cudaStream_t stream) {
  const CodedPanels layout{.kind = kind, .rows = rows, .columns = k};
  // Panels are at least as long as their rows, so the last rows go first.
  const std::int64_t at_once = std::max(room_bytes / k / panel_rows, std::int64_t{1}) * panel_rows;
  for (std::int64_t end = rows; end > 0;) {
    const std::int64_t count = std::min(at_once, end), first = end - count;
    cudaError_t error =
        cudaMemcpyAsync(room, codes + first * k, static_cast<std::size_t>(count * k),
                        cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return error;
    error = launch_arrange_panels(kind, static_cast<const std::uint8_t*>(room), count, k,
                                  codes + first / panel_rows * layout.panel_bytes(),
                                  row_scales + first, stream);
    if (error != cudaSuccess) return error;
    end = first;
  }
  return cudaSuccess;
}

}  // namespace troupe
