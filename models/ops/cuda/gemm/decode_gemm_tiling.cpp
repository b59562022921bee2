#include "models/ops/cuda/gemm/decode_gemm_tiling.hpp"

#include <algorithm>

#include "models/ops/cuda/common/hopper.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int max_parts = 4;

/// The number of tiles of `rows` rows of the weight, or of x.
std::int64_t tiles_of(std::int64_t all, std::int64_t rows) { return (all + rows - 1) / rows; }

/// The elements of k that fill 16 bytes.
std::int64_t k_unit(const DecodeGemm& gemm) { return gemm.weight_scales != nullptr ? 16 : 8; }
/// The steps of k.
std::int64_t steps_of(const DecodeGemm& gemm) { return tiles_of(gemm.k, 8 * k_unit(gemm)); }

}  // namespace

// Larger clusters would wait for kernels before that are still on some of a group of
// multiprocessors.
bool reads_deep(const DecodeGemm& gemm, DecodeGemmTiling tiling) {
  const std::int64_t blocks = tiles_of(gemm.n, group_rows) * tiling.parts;
  return tiling.groups == 1 && tiling.parts <= 2 && gemm.rows <= max_deep_rows &&
         blocks <= multiprocessors();
}

bool makes_codes(const DecodeGemm& gemm, DecodeGemmTiling tiling) {
  return gemm.weight_scales != nullptr && gemm.rows == 1 && gemm.k <= max_coded_k &&
         steps_of(gemm) <= max_coded_steps * tiling.parts && reads_deep(gemm, tiling);
}

}  // namespace cuda

using namespace cuda;

bool decode_gemm_fits(const DecodeGemm& gemm) {
  if (!hopper_kernels_run() || gemm.k % k_unit(gemm) != 0 || gemm.n % (gemm.gated ? 16 : 8) != 0) {
    return false;
  }
  return gemm.rows <= max_decode_rows;
}

DecodeGemmTiling best_tiling(const DecodeGemm& gemm) {
  // As measured with the matrices of Qwen3-0.6B, 8B, 30B-A3B and quarters of them: one wave of
  // blocks, with as few rows of the weight each as that allows; clusters of more than four parts
  // wait for free slots.
  if (tiles_of(gemm.n, 3 * group_rows) > multiprocessors() * 3 / 4) return {3, 1};
  const std::int64_t tiles = tiles_of(gemm.n, group_rows);
  const std::int64_t parts =
      std::min({multiprocessors() / tiles, steps_of(gemm) / 8, std::int64_t{max_parts}});
  return {1, static_cast<int>(std::max<std::int64_t>(parts, 1))};
}

bool decode_gemm_suits(const DecodeGemm& gemm) {
  if (!decode_gemm_fits(gemm)) return false;
  const DecodeGemmTiling tiling = best_tiling(gemm);
  // Three groups with 128 rows wait for the second-level cache, as measured with the matrices of
  // Qwen3-8B and of Llama-70B's halves.
  constexpr std::int64_t min_measured_k = 2048, max_rows_of_three = 96;
  if (gemm.weight_scales != nullptr) {
    return tiling.groups == 1 || gemm.k < min_measured_k || gemm.rows <= max_rows_of_three;
  }
  // Tiles of two waves, e.g. a head's, are left to libraries; two blocks of few rows fit on a
  // multiprocessor.
  if (tiles_of(gemm.n, tiling.groups * group_rows) > multiprocessors()) {
    return tiling.groups == 1 && gemm.rows <= 32;
  }
  return gemm.rows <= (tiling == DecodeGemmTiling{1, 1} ? 96 : 128);
}

bool decode_gemm_makes_codes(const DecodeGemm& gemm) {
  return decode_gemm_fits(gemm) && makes_codes(gemm, best_tiling(gemm));
}

}  // namespace troupe
