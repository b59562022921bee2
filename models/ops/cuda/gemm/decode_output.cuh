// How kernels for decode batches store their sums, which wgmma leaves with the weight's rows as
// rows.
#pragma once

#include "models/ops/cuda/common/silu.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

enum class Output { bf16, f32, gated };

/// The result of a GEMM: [rows, width].
struct DecodeOutput {
  void* out;
  int rows, width;
  Output output;

  /// Makes it the result of at most `most` rows from `first` on.
  __device__ __forceinline__ void skip_rows(int first, int most) {
    const std::size_t before = std::size_t{static_cast<unsigned>(first)} * width;
    out = static_cast<unsigned char*>(out) +
          before * (output == Output::f32 ? sizeof(float) : sizeof(bf16));
    rows = min(rows - first, most);
  }
};

/// Writes a thread's sums for rows 8 quad + 2 (lane % 4) + {0, 1} of x and two rows of the weight,
/// eight apart; the upper is row `at` of its tile plus lane / 4. Of gated ones the upper is a gate,
/// at / 2 + lane / 4, and the lower its up projection.
__device__ __forceinline__ void store_quad(const DecodeOutput& to, int quad, int at, float4 sums) {
  const int lane = threadIdx.x % 32;
  const int row = 8 * quad + lane % 4 * 2;
  const std::size_t width = to.width;
  if (to.output == Output::f32) {
    auto* const out = static_cast<float*>(to.out);
    const int column = at + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + i >= to.rows) break;
      float* const place = out + (row + i) * width + column;
      if (column < to.width) place[0] = i == 0 ? sums.x : sums.y;
      if (column + 8 < to.width) place[8] = i == 0 ? sums.z : sums.w;
    }
    return;
  }
  // Two lanes exchange halves, so that each writes two columns of one row.
  const bool even = lane / 4 % 2 == 0;
  const int own_row = even ? row : row + 1;
  auto* const out = static_cast<bf16*>(to.out);
  const auto store_pair = [&](float first, float second, int column) {
    const float got = __shfl_xor_sync(~0U, even ? second : first, 4);
    if (own_row >= to.rows || column >= to.width) return;
    *reinterpret_cast<__nv_bfloat162*>(out + own_row * width + column) =
        even ? __floats2bfloat162_rn(first, got) : __floats2bfloat162_rn(got, second);
  };
  const int pair = lane / 8 * 2;
  if (to.output == Output::gated) {
    store_pair(fast_silu(sums.x) * sums.z, fast_silu(sums.y) * sums.w, at / 2 + pair);
  } else {
    store_pair(sums.x, sums.y, at + pair);
    store_pair(sums.z, sums.w, at + 8 + pair);
  }
}

}  // namespace troupe::cuda
