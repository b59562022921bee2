#include "models/ops/cuda/gemm/scaled_gemm_tiling.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

using cuda::tile_k, cuda::tile_rows;

/// Larger batches of E4M3 codes have tiles enough for all multiprocessors whatever their size.
constexpr std::int64_t max_rows = 1024;
constexpr std::int64_t min_k = 2048;  // E4M3 codes have 16 steps then, more than are under way

std::int64_t pieces_of(std::int64_t all, std::int64_t size) { return (all + size - 1) / size; }

// Microseconds, as measured on an H200 with the matrices of Qwen3-8B and of Llama-70B's halves.
constexpr double start_us = 3.5, exchange_us = 1.7;
struct TileCost {
  int columns;
  double step_us, end_us;  // for 128 columns of k; for writing the tile
};
constexpr std::array<TileCost, 4> e4m3_costs{
    {{64, 0.28, 0.4}, {96, 0.29, 0.8}, {128, 0.395, 0.8}, {192, 0.525, 1.3}}};
constexpr std::array<TileCost, 5> int8_costs{
    {{64, 0.24, 0.4}, {96, 0.25, 0.8}, {128, 0.325, 0.8}, {192, 0.47, 1.3}, {256, 0.64, 1.5}}};
constexpr double never = 1e9;
/// Of tiles of 128 x 128; it clears its counters of tiles by a kernel before.
constexpr double cublaslt_step_us = 0.3875, cublaslt_start_us = 5.1;

/// How long a GEMM takes if it is cut like this; `never` if it cannot be.
double time_of(const ScaledGemm& gemm, const TileCost& tile, PairShares shares) {
  if (tile.columns > 192 && shares == PairShares::tile) return never;
  const bool pairs_rows = shares == PairShares::weight, pairs_columns = shares == PairShares::x;
  const std::int64_t units = pieces_of(gemm.rows, pairs_rows ? 2 * tile_rows : tile_rows) *
                             pieces_of(gemm.n, pairs_columns ? 2 * tile.columns : tile.columns);
  const std::int64_t waves = pieces_of(units, std::max(cuda::multiprocessors() / 2, 1));
  const auto steps = static_cast<double>(pieces_of(gemm.k, tile_k));
  if (shares == PairShares::tile) {
    return waves > 1 || steps < 2 ? never
                                  : start_us + steps / 2 * tile.step_us + exchange_us + tile.end_us;
  }
  return start_us + static_cast<double>(waves) * (steps * tile.step_us + tile.end_us);
}

/// How long cuBLASLt takes with E4M3 codes.
double time_of_cublaslt(const ScaledGemm& gemm) {
  const std::int64_t tiles = pieces_of(gemm.rows, tile_rows) * pieces_of(gemm.n, 128);
  const std::int64_t waves = pieces_of(tiles, std::max(cuda::multiprocessors(), 1));
  return cublaslt_start_us +
         static_cast<double>(waves * pieces_of(gemm.k, tile_k)) * cublaslt_step_us;
}

}  // namespace

bool scaled_gemm_fits(const ScaledGemm& gemm) {
  return hopper_kernels_run() && gemm.k % 16 == 0 && gemm.n % 8 == 0;
}

std::optional<ScaledGemmTiling> best_tiling(const ScaledGemm& gemm) {
  if (!scaled_gemm_fits(gemm)) return std::nullopt;
  const bool is_int8 = gemm.kind == CodeKind::int8;
  if (!is_int8 && (gemm.rows > max_rows || gemm.k < min_k)) return std::nullopt;
  std::optional<ScaledGemmTiling> best;
  double least = is_int8 ? never : time_of_cublaslt(gemm);
  const std::span<const TileCost> costs =
      is_int8 ? std::span<const TileCost>(int8_costs) : e4m3_costs;
  for (const TileCost& tile : costs) {
    // The first of equal ones is taken: blocks that share weights measured faster than those that
    // share x.
    for (const PairShares shares : {PairShares::weight, PairShares::x, PairShares::tile}) {
      const double time = time_of(gemm, tile, shares);
      if (time >= least) continue;
      least = time;
      best = {tile.columns, shares};
    }
  }
  return best;
}

}  // namespace troupe
