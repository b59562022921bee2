// What scaled_gemm's kernel and the choice of its tiling share.
#pragma once

namespace troupe::cuda {

constexpr int tile_rows = 128;  // of x
constexpr int tile_k = 128;     // of a step

}  // namespace troupe::cuda
