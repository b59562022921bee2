#include <algorithm>

#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/gemm/decode_codes.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int steps = 8;  // of 16 columns in a unit
constexpr int tile_rows = 8;
constexpr int columns_of_unit = static_cast<int>(unit_columns);
constexpr int row_units = columns_of_unit / 8;  // of 16 bytes in a row of a unit

struct Decoding {
  const unsigned char* panels;
  const float* row_scales;
  bf16* out;
  CodeLayout layout;
  int first, count, k;  // rows from `first` on
};

constexpr int decoding_warps = 8;
/// Bytes of a row in shared memory, so that eight rows begin in different banks.
constexpr int decoded_row_bytes = columns_of_unit * static_cast<int>(sizeof(bf16)) + 16;
constexpr int lane_units = tile_rows * row_units / 32;  // of 16 bytes that a lane writes

/// A warp decodes a unit at a time. Grid: any number of blocks.
template <class Traits>
__global__ void __launch_bounds__(decoding_warps * 32)
    decode_units(const __grid_constant__ Decoding job) {
  __shared__ __align__(16) unsigned char memory[decoding_warps][tile_rows * decoded_row_bytes];
  let_next_kernel_start();
  wait_for_kernels_before();
  const CodeLayout& layout = job.layout;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4, fourth = lane % 4;
  const int panels = (job.count + 7) / 8;
  for (std::int64_t i = blockIdx.x * decoding_warps + warp; i < std::int64_t{panels} * layout.units;
       i += gridDim.x * decoding_warps) {
    const int panel = static_cast<int>(i / layout.units), unit = static_cast<int>(i % layout.units);
    const unsigned char* const from =
        job.panels +
        ((std::int64_t{job.first / 8} + panel) * layout.units + unit) * layout.unit_bytes;
    LaneCodes<Traits::kind, Traits::has_zeros> codes;
    codes.read(from);
    unsigned char* const rows = memory[warp];
    const int row = min(8 * panel + own, job.count - 1);
    float scale = layout.scales_in_units ? 1.0F : job.row_scales[job.first + row] * Traits::rest;
    std::uint32_t offset = 0;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (step % 2 == 0 && (step / 2 & (layout.group_chunks - 1)) == 0) {
        const int place = step / 2 / layout.group_chunks * 8 + own;
        offset = offset_at<Traits::kind, Traits::has_zeros>(layout, from, place);
        if (layout.scales_in_units) scale = scales_at(layout, from, from, place).x;
      }
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const float2 two = __bfloat1622float2(
            pair_of(operand_pair<Traits>(codes, layout, from, step, high, offset)));
        *reinterpret_cast<__nv_bfloat162*>(rows + own * decoded_row_bytes + 32 * step + 16 * high +
                                           4 * fourth) =
            __floats2bfloat162_rn(two.x * scale, two.y * scale);
      }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < lane_units; ++j) {
      const int place = lane + 32 * j, of = place / row_units;
      const int column = unit * columns_of_unit + place % row_units * 8;
      if (8 * panel + of >= job.count || column >= job.k) continue;
      *reinterpret_cast<uint4*>(job.out + (std::int64_t{8} * panel + of) * job.k + column) =
          *reinterpret_cast<const uint4*>(rows + of * decoded_row_bytes + place % row_units * 16);
    }
    __syncwarp();
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_decode_rows(const CodedWeight& weight, std::int64_t first, std::int64_t count,
                               void* out, cudaStream_t stream) {
  const Decoding job{.panels = static_cast<const unsigned char*>(weight.panels),
                     .row_scales = weight.row_scales,
                     .out = static_cast<bf16*>(out),
                     .layout = code_layout(weight.layout),
                     .first = static_cast<int>(first),
                     .count = static_cast<int>(count),
                     .k = static_cast<int>(weight.layout.columns)};
  const unsigned needed =
      blocks_of(blocks_of(count, panel_rows) * weight.layout.units(), decoding_warps);
  const unsigned blocks = std::min(needed, static_cast<unsigned>(8 * multiprocessors()));
  cudaError_t error = cudaSuccess;
  with_traits(weight.layout, [&]<class Traits>(Traits) {
    error = launch_early(decode_units<Traits>, {dim3(blocks), decoding_warps * 32}, stream, job);
  });
  return error;
}

}  // namespace troupe
