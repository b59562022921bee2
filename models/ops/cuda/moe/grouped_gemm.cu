// Grouped GEMMs for experts with few rows, by groups of four warps on Hopper's tensor cores
// (wgmma), fed by asynchronous copies: bound by the weights' bytes, which are streamed through
// shared memory once. The weights' rows are the left matrix of a tile, so that few rows waste
// little.
#include <algorithm>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/moe/grouped_gemm.hpp"
#include "models/ops/cuda/moe/grouped_gemm_2cta.hpp"
#include "models/ops/cuda/moe/grouped_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = 256;       // two groups of four warps
constexpr int blocks = 2;          // per multiprocessor
constexpr int group_columns = 64;  // per group

/// Adds the products of a stage's codes to `sums`: first of at most 64 rows, during which copy() is
/// called, then of others.
template <class T, class Copy>
__device__ __forceinline__ void add_codes(std::uint64_t left, std::uint32_t rows_at,
                                          float (&sums)[T::rows / 2], const Copy& copy) {
  constexpr int first = T::rows < 64 ? T::rows : 64, rest = T::rows - first;
  const auto add = [&]<int count>(int from, float(&parts)[count]) {
    multiply_tile<E4m3Tiles>(left, tile_descriptor(rows_at + from * row_bytes), false, parts);
    if (from == 0) copy();
    wait_for_products<0>();
    pin(parts);
#pragma unroll
    for (int i = 0; i < count; ++i) sums[from / 2 + i] += parts[i];
  };
  float parts[first / 2];
  add(0, parts);
  if constexpr (rest > 0) {
    float others[rest / 2];
    add(first, others);
  }
}

/// Blocks take every gridDim.x-th tile. Copies run T::ahead steps of k ahead of the wgmma, across
/// the ends of tiles; a stage is overwritten when its own wgmma have ended and those of a later
/// step have begun.
template <class T, Form form, class Out>
__global__ void __launch_bounds__(threads, blocks)
    grouped_gemm_kernel(const Gemm<typename T::Element> gemm, Out* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Element = typename T::Element;
  constexpr bool gated = form == Form::gated;
  constexpr int tile_k = Element::tile_k;
  let_next_kernel_start();
  if constexpr (form != Form::heads) wait_for_kernels_before();
  extern __shared__ unsigned char shared[];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  unsigned char* const behind = shared + (stages_at - begin) + T::stages * T::stage_bytes;
  auto* const memory = reinterpret_cast<std::int32_t*>(behind + T::rows_bytes);
  const int columns = gated ? T::columns / 2 : T::columns;
  const int width = static_cast<int>(gated ? gemm.n / 2 : gemm.n);
  const int column_tiles = (width + columns - 1) / columns;
  const auto offset_of = [&](int expert) {
    if constexpr (form == Form::heads) {
      return static_cast<std::int32_t>(expert * gemm.heads.rows);
    } else {
      return gemm.offsets[expert];
    }
  };
  const TileTable table =
      make_tile_table(offset_of, static_cast<int>(gemm.experts), memory,
                      [=](int rows) { return (rows + T::rows - 1) / T::rows * column_tiles; });
  const int tiles = table.tiles();
  const int k_steps = static_cast<int>((gemm.k + tile_k - 1) / tile_k);

  Copies<T, form> copies(gemm, stages_at);
  int next_tile = blockIdx.x, next_step = 0;
  if (next_tile < tiles) copies.open(find_tile<T>(table, column_tiles, next_tile));
  int early_steps = 0;  // of the first tile, whose weights are copied while earlier kernels end
  if constexpr (form == Form::heads) {
    if (next_tile < tiles) early_steps = min(k_steps, T::ahead);
    for (int step = 0; step < early_steps; ++step) copies.copy_weights(step * tile_k, step);
    wait_for_kernels_before();
  }
  const auto copy_next = [&](int stage) {
    if (next_tile < tiles) {
      if (form != Form::heads || early_steps-- <= 0) copies.copy_weights(next_step * tile_k, stage);
      copies.copy_rows(next_step * tile_k, stage);
      if (++next_step == k_steps) {
        next_step = 0;
        next_tile += gridDim.x;
        if (next_tile < tiles) copies.open(find_tile<T>(table, column_tiles, next_tile));
      }
    }
    close_copies();
  };
#pragma unroll
  for (int stage = 0; stage < T::ahead; ++stage) copy_next(stage);

  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0), group = warp / 4;
  int stage = 0, next_stage = T::ahead, rows_at = 0;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile = find_tile<T>(table, column_tiles, number);
    const RowWords words = row_words<T, form>(gemm, tile, warp * 16, behind + rows_at * 4);
    rows_at = rows_at + T::rows == T::all_rows ? 0 : rows_at + T::rows;
    float sums[T::rows / 2];
#pragma unroll
    for (float& sum : sums) sum = 0.0F;
    for (int step = 0; step < k_steps; ++step) {
      wait_for_copies<T::ahead - 1>();
      show_to_products();
      __syncthreads();
      const std::uint32_t at = stages_at + stage * T::stage_bytes;
      const std::uint64_t left = tile_descriptor(at + group * group_columns * row_bytes);
      if constexpr (Element::has_scales) {
        add_codes<T>(left, at + T::columns_bytes, sums, [&] { copy_next(next_stage); });
      } else {
        multiply_tile<Element>(left, tile_descriptor(at + T::columns_bytes), true, sums);
        copy_next(next_stage);
        wait_for_products<1>();
      }
      stage = stage + 1 == T::stages ? 0 : stage + 1;
      next_stage = next_stage + 1 == T::stages ? 0 : next_stage + 1;
    }
    wait_for_products<0>();
    pin(sums);
    store_sums<T, form>(gemm, tile, warp * 16, sums, words, out);
  }
  wait_for_copies<0>();
#endif
}

template <class T, Form form, class Out>
cudaError_t launch(const GroupedGemm& wanted, cudaStream_t stream) {
  using Element = typename T::Element;
  using Stored = typename Element::Stored;
  constexpr bool gated = form == Form::gated;
  auto* const kernel = grouped_gemm_kernel<T, form, Out>;
  const std::size_t shared = shared_bytes<T>(wanted.experts);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(shared));
  const Gemm<Element> gemm{static_cast<const Stored*>(wanted.weights),
                           static_cast<const Stored*>(wanted.x),
                           wanted.weight_scales,
                           wanted.x_scales,
                           wanted.offsets,
                           wanted.source,
                           static_cast<std::uint32_t>(wanted.experts),
                           static_cast<std::uint32_t>(wanted.n),
                           static_cast<std::uint32_t>(wanted.k),
                           static_cast<std::uint32_t>(wanted.top_k),
                           wanted.gather,
                           wanted.scatter,
                           wanted.heads};
  const std::int64_t width = gated ? wanted.n / 2 : wanted.n;
  const std::int64_t columns = gated ? T::columns / 2 : T::columns;
  const std::int64_t row_tiles =
      wanted.assignments / T::rows + std::min(wanted.experts, wanted.assignments);
  const std::int64_t max_tiles = row_tiles * ((width + columns - 1) / columns);
  const auto grid = static_cast<unsigned>(
      std::min<std::int64_t>(max_tiles, std::int64_t{multiprocessors()} * blocks));
  return launch_early(kernel, {dim3(grid), threads, shared}, stream, gemm,
                      static_cast<Out*>(wanted.out));
}

template <class T>
cudaError_t launch_tiling(const GroupedGemm& gemm, cudaStream_t stream) {
  if (gemm.gated) return launch<T, Form::gated, bf16>(gemm, stream);
  if constexpr (!T::Element::has_scales) {
    if (gemm.heads.rows > 0) return launch<T, Form::heads, bf16>(gemm, stream);
  }
  if (gemm.out_dtype == DType::bf16) return launch<T, Form::plain, bf16>(gemm, stream);
  return launch<T, Form::plain, float>(gemm, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

GroupedGemmTiling best_tiling(const GroupedGemm& gemm) {
  // As measured with 128 experts of 1,536 x 2,048 and 2,048 x 768, halves and quarters of these, 32
  // whole ones, and 8 of 6,144 x 2,048 and 2,048 x 3,072.
  const std::int64_t rows = gemm.assignments / std::max<std::int64_t>(gemm.experts, 1);
  if (rows <= 8) return GroupedGemmTiling::rows_16;
  if (gemm.heads.rows > 0) {
    // Heads' matrices are small: more blocks with more stages each finish sooner, while each has a
    // multiprocessor of its own.
    const auto have_room = [&](std::int64_t tile_rows) {
      const std::int64_t tiles = blocks_of(gemm.heads.rows, tile_rows) * gemm.experts *
                                 std::int64_t{blocks_of(gemm.n, Rows16<Bf16Tiles>::columns)};
      return tiles <= multiprocessors();
    };
    if (have_room(16)) return GroupedGemmTiling::rows_16;
    if (rows <= 24 || have_room(32)) return GroupedGemmTiling::rows_32;
    return GroupedGemmTiling::rows_64;
  }
  if (gemm.is_coded()) {
    // Two experts in a hundred with 48 or 64 rows on average have more than 64 or 80.
    if (rows <= 20) return GroupedGemmTiling::rows_32;
    if (rows <= 52) return GroupedGemmTiling::rows_64;
    return rows <= 72 ? GroupedGemmTiling::rows_80 : GroupedGemmTiling::rows_256;
  }
  if (rows <= 24) return GroupedGemmTiling::rows_32;
  return rows <= 56 ? GroupedGemmTiling::rows_64 : GroupedGemmTiling::rows_256;
}

bool grouped_gemm_fits(const GroupedGemm& gemm) {
  const std::int64_t width = gemm.gated ? gemm.n / 2 : gemm.n;
  constexpr std::int64_t unit_elements = Bf16Tiles::unit_elements;  // of rows of out, too
  const std::int64_t k_unit = gemm.is_coded() ? E4m3Tiles::unit_elements : unit_elements;
  const bool heads_fit =
      gemm.heads.rows == 0 ||
      (!gemm.is_coded() && gemm.out_dtype == DType::bf16 &&
       gemm.heads.x_stride % unit_elements == 0 && gemm.heads.out_stride % unit_elements == 0 &&
       gemm.heads.out_width % unit_elements == 0 &&
       reinterpret_cast<std::uintptr_t>(gemm.x) % (unit_elements * sizeof(bf16)) == 0);
  return heads_fit && hopper_kernels_run() && gemm.k % k_unit == 0 && width % unit_elements == 0 &&
         gemm.n * gemm.k < std::int64_t{1} << 32 && gemm.experts <= max_experts;
}

cudaError_t launch_grouped_gemm(const GroupedGemm& gemm, GroupedGemmTiling tiling,
                                cudaStream_t stream) {
  const auto launch_of = [&]<class Element>(Element) {
    switch (tiling) {
      case GroupedGemmTiling::rows_16:
        return launch_tiling<Rows16<Element>>(gemm, stream);
      case GroupedGemmTiling::rows_32:
        return launch_tiling<Rows32<Element>>(gemm, stream);
      case GroupedGemmTiling::rows_64:
        return launch_tiling<Rows64<Element>>(gemm, stream);
      case GroupedGemmTiling::rows_80:
        if constexpr (Element::has_scales) {
          return launch_tiling<Rows80<Element>>(gemm, stream);
        } else {
          return cudaErrorInvalidValue;
        }
      case GroupedGemmTiling::rows_256:
        return launch_grouped_gemm_2cta(gemm, stream);
    }
    return cudaErrorInvalidValue;
  };
  return gemm.is_coded() ? launch_of(E4m3Tiles{}) : launch_of(Bf16Tiles{});
}

}  // namespace troupe
