// The tiles of coded_grouped_gemm.cu and coded_grouped_gemm_wide.cu: which a block has, what its
// codes become, and where its sums go.
#pragma once

#include <cuda.h>

#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/gemm/code_fragments.cuh"
#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"
#include "models/ops/cuda/moe/expert_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe::cuda::coded_experts {

constexpr int group_threads = 128;
constexpr int group_panels = 8;         // of 64 rows of the weights, an instruction's
constexpr int steps = 8;                // of 16 columns in a unit of codes
constexpr int max_shared = 226 * 1024;  // of a multiprocessor

/// A block multiplies up to `max_rows` rows of x with 64 rows of the weights for each of `groups`
/// groups of four warps; another group fetches.
template <class Traits_, int groups_, int max_rows_, int blocks_>
struct Tiling {
  using Traits = Traits_;
  static constexpr int groups = groups_;
  static constexpr int max_rows = max_rows_;
  static constexpr int blocks = blocks_;  // of a multiprocessor
  static constexpr int multiplying = groups * group_threads;
  static constexpr int threads = multiplying + group_threads;
  static constexpr int panels = groups * group_panels;
  static constexpr int box_bytes = max_rows * row_bytes;  // of 64 columns of x
  static constexpr int x_bytes = 2 * box_bytes;           // of a unit
};

enum class Output { bf16, f32, gated, clamped };
__host__ __device__ constexpr bool is_gated(Output output) {
  return output == Output::gated || output == Output::clamped;
}

struct Gemm {
  CUtensorMap weights;
  const bf16* x;
  const std::int32_t* offsets;
  const std::int32_t* source;
  const float* bias;
  const float* row_scales;
  void* out;
  CodeLayout layout;
  Output output;
  std::uint32_t k, top_k;
  int experts, width, column_tiles;  // width: of the output
  int stages, stage_bytes;
  bool gather, scatter;
};

struct Tile {
  int expert;
  int row;     // the first sorted row
  int rows;    // 1 to max_rows
  int column;  // in tiles
};

/// A place in a ring of stages.
struct Position {
  int stage = 0;
  std::uint32_t odd = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      odd ^= 1;
    }
  }
};

/// Describes experts' panels to the copy engine in boxes of a unit of `count` panels; of a gated
/// matrix a panel of the first half is followed by the one of the second half.
inline bool map_experts(const CodedGroupedGemm& wanted, int count, CUtensorMap& map) {
  const CodedPanels& layout = wanted.layout;
  const auto unit = static_cast<std::uint64_t>(layout.unit_bytes()) / 8;
  const auto of_row = static_cast<std::uint64_t>(layout.units()), all = of_row * unit;
  const auto total = static_cast<std::uint64_t>(layout.panels());
  const auto experts = static_cast<std::uint64_t>(wanted.experts);
  const auto box = static_cast<std::uint32_t>(count), width = static_cast<std::uint32_t>(unit);
  TiledTensor tensor = wanted.gated ? TiledTensor{wanted.panels,
                                                  {unit, of_row, 2, total / 2, experts},
                                                  {unit, total / 2 * all, all, total * all},
                                                  {width, 1, 2, box / 2, 1}}
                                    : TiledTensor{wanted.panels,
                                                  {unit, of_row, total, experts, 1},
                                                  {unit, all, total * all, experts * total * all},
                                                  {width, 1, box, 1, 1}};
  tensor.swizzled = false;
  tensor.element_bytes = 8;
  return make_tensor_map(tensor, map);
}

/// Makes the copy engine bring a unit of a tile's panels, as map_experts describes them.
template <class T>
__device__ __forceinline__ void copy_unit(const Gemm& gemm, const Tile& tile, int unit,
                                          std::uint32_t to, std::uint32_t barrier) {
  const bool gated = is_gated(gemm.output);
  const int panel = tile.column * T::panels;
  copy_box(to, &gemm.weights, 0, unit, gated ? 0 : panel, gated ? panel / 2 : tile.expert,
           gated ? tile.expert : 0, barrier);
}

/// Sets what tilings have in common; false if the panels cannot be described.
template <class T>
bool describe(const CodedGroupedGemm& wanted, Gemm& gemm) {
  if (!map_experts(wanted, T::panels, gemm.weights)) return false;
  gemm.x = static_cast<const bf16*>(wanted.x);
  gemm.offsets = wanted.offsets;
  gemm.source = wanted.source;
  gemm.row_scales = wanted.row_scales;
  gemm.out = wanted.out;
  gemm.layout = code_layout(wanted.layout);
  gemm.bias = wanted.bias;
  gemm.output = wanted.clamped                   ? Output::clamped
                : wanted.gated                   ? Output::gated
                : wanted.out_dtype == DType::f32 ? Output::f32
                                                 : Output::bf16;
  gemm.k = static_cast<std::uint32_t>(wanted.layout.columns);
  gemm.top_k = static_cast<std::uint32_t>(wanted.top_k);
  gemm.experts = static_cast<int>(wanted.experts);
  gemm.width = static_cast<int>(wanted.gated ? wanted.layout.rows / 2 : wanted.layout.rows);
  gemm.column_tiles = static_cast<int>(blocks_of(wanted.layout.panels(), T::panels));
  gemm.gather = wanted.gather;
  gemm.scatter = wanted.scatter;
  return true;
}

/// Enqueues a kernel that takes tiles in turn, on all multiprocessors, with so many bytes of shared
/// memory a block.
template <class T>
cudaError_t launch_tiles(void (*kernel)(Gemm), const Gemm& gemm, int shared, cudaStream_t stream) {
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared);
  if (allowed != cudaSuccess) return allowed;
  const auto blocks = static_cast<unsigned>(T::blocks * multiprocessors());
  return launch_early(kernel, {dim3(blocks), T::threads, static_cast<std::size_t>(shared)}, stream,
                      gemm);
}

/// Calls body with the CodeTraits of experts' panels.
template <class Body>
void with_expert_traits(const CodedPanels& panels, const Body& body) {
  if (panels.kind == CodeKind::e4m3) return body(CodeTraits<CodeKind::e4m3, false>());
  if (panels.kind == CodeKind::e2m1) {
    return panels.group_columns == nvfp4_columns ? body(CodeTraits<CodeKind::e2m1, false, true>())
                                                 : body(CodeTraits<CodeKind::e2m1, false>());
  }
  if (panels.has_zero_points) return body(CodeTraits<CodeKind::int4, true>());
  body(CodeTraits<CodeKind::int4, false>());
}

/// make_tile_table of all experts' tiles.
template <class T>
__device__ __forceinline__ TileTable make_table(const Gemm& gemm, std::int32_t* memory) {
  const int columns = gemm.column_tiles;
  return make_tile_table(
      [&](int expert) { return gemm.offsets[expert]; }, gemm.experts, memory,
      [columns](int rows) { return (rows + T::max_rows - 1) / T::max_rows * columns; });
}

/// Tiles of the same columns are adjacent, so that their weights are still in the cache.
template <class T>
__device__ Tile find_tile(const TileTable& table, int number) {
  const int expert = table.expert_of(number);
  const int begin = table.offsets[expert], rows = table.rows_of(expert);
  const int row_tiles = (rows + T::max_rows - 1) / T::max_rows;
  const int in_expert = number - table.first[expert], column = in_expert / row_tiles;
  const int row = (in_expert - column * row_tiles) * T::max_rows;
  return {expert, begin + row, min(T::max_rows, rows - row), column};
}

/// A thread's copies of rows of x in the fetching group: of every 16th row a unit of 16 bytes. Two
/// instructions for an address: with ten they bound the kernel.
template <class T>
class RowCopies {
 public:
  __device__ RowCopies(const Gemm& gemm, int thread)
      : gemm_(gemm),
        first_(thread / units),
        unit_(thread % units),
        to_(first_ * row_bytes + (unit_ ^ first_ % units) * unit_bytes) {}

  /// Begins a tile. Rows after its last become that row: what is multiplied with them goes nowhere.
  __device__ __forceinline__ void find(const Tile& tile) {
    k_ = unit_;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = min(first_ + i * rows_at_once, tile.rows - 1);
      row_at_[i] = static_cast<std::uint32_t>(row_of_x(gemm_, tile.row + row)) * row_units();
    }
  }

  /// Copies the next 64 columns of at most `rows` rows; columns after the last are zeros.
  __device__ __forceinline__ void copy(std::uint32_t box, int rows) {
    const bool in_k = k_ < row_units();
    const uint4* from = reinterpret_cast<const uint4*>(gemm_.x) + k_;
    asm volatile("" : "+l"(from));  // keeps the compiler from adding k_ to each row's place first
    k_ += units;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      if (i * rows_at_once >= rows) break;
      copy_async(box + to_ + i * rows_at_once * row_bytes, from + row_at_[i], in_k);
    }
  }

 private:
  static constexpr int rows_at_once = group_threads / units, copies = T::max_rows / rows_at_once;

  __device__ std::uint32_t row_units() const { return gemm_.k * sizeof(bf16) / unit_bytes; }

  const Gemm& gemm_;
  int first_, unit_;
  std::uint32_t to_, k_ = 0;
  std::uint32_t row_at_[copies];  // in units
};

/// Two panels' numbers of a step of 16 columns, a warp's part of wgmma's left operand. `upper` and
/// `lower` are the panels' units, whose step `step` is step `at` of the codes.
template <class Traits>
__device__ __forceinline__ void make_numbers(
    const CodeLayout& layout, const LaneCodes<Traits::kind, Traits::has_zeros>& top,
    const LaneCodes<Traits::kind, Traits::has_zeros>& bottom, const unsigned char* upper,
    const unsigned char* lower, int at, int step, std::uint32_t (&numbers)[4]) {
  constexpr CodeKind kind = Traits::kind;
  if constexpr (kind == CodeKind::e4m3) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      numbers[2 * high] = top.pair(at, high, 0);
      numbers[2 * high + 1] = bottom.pair(at, high, 0);
    }
  } else {
    const int chunk = step / 2;
    const int group = Traits::are_sixteens     ? step
                      : kind == CodeKind::e2m1 ? chunk
                                               : chunk >> layout.group_chunks / 2;
    const int place = group * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    const std::uint32_t top_factor = factor_at<kind>(layout, upper, place);
    const std::uint32_t bottom_factor = factor_at<kind>(layout, lower, place);
    const std::uint32_t top_offset = offset_at<kind, Traits::has_zeros>(layout, upper, place);
    const std::uint32_t bottom_offset = offset_at<kind, Traits::has_zeros>(layout, lower, place);
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      numbers[2 * high] = number_pair(top, at, high, top_offset, top_factor);
      numbers[2 * high + 1] = number_pair(bottom, at, high, bottom_offset, bottom_factor);
    }
  }
}

/// Multiplies a warp's sums, as store_sums takes them, by the scales of their rows of the weights.
template <class Traits, int count>
__device__ __forceinline__ void scale_rows(const Gemm& gemm, const Tile& tile, int at,
                                           float (&sums)[count]) {
  const bool gated = is_gated(gemm.output);
  const int n = gated ? 2 * gemm.width : gemm.width;
  const int upper = (gated ? at / 2 : at) + threadIdx.x % 32 / 4;
  const int lower = gated ? upper + gemm.width : upper + 8;
  const float* const of_expert = gemm.row_scales + std::size_t(n) * tile.expert;
  const float top = of_expert[min(upper, n - 1)] * Traits::rest;
  const float bottom = of_expert[min(lower, n - 1)] * Traits::rest;
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    sums[i] *= top, sums[i + 1] *= top;
    sums[i + 2] *= bottom, sums[i + 3] *= bottom;
  }
}

/// Multiplies a warp's sums by what the numbers of their codes lack.
template <class Traits, int count>
__device__ __forceinline__ void complete_sums(const Gemm& gemm, const Tile& tile, int at,
                                              float (&sums)[count]) {
  if constexpr (Traits::are_sixteens || Traits::kind == CodeKind::e4m3) {
    scale_rows<Traits>(gemm, tile, at, sums);
  } else if constexpr (Traits::kind == CodeKind::e2m1) {
#pragma unroll
    for (float& sum : sums) sum *= e2m1_rest;
  }
}

/// Finds where rows t, t + stride, .. of a tile go; t is the thread modulo `stride`.
template <int rows, int stride = 32>
__device__ __forceinline__ void find_targets(
    const Gemm& gemm, const Tile& tile, std::int32_t (&targets)[(rows + stride - 1) / stride]) {
#pragma unroll
  for (int i = 0; i < (rows + stride - 1) / stride; ++i) {
    const int row = stride * i + static_cast<int>(threadIdx.x) % stride, sorted = tile.row + row;
    targets[i] = gemm.scatter && row < tile.rows ? gemm.source[sorted] : sorted;
  }
}

/// silu(gate) * up, or Activation::clamped_gated, for results that are rounded to bf16. Without a
/// branch, so that many are computed at once.
__device__ __forceinline__ float activated(bool clamped, float gate, float up) {
  const float g = clamped ? fminf(gate, 7.0F) : gate;
  const float u = clamped ? fminf(fmaxf(up, -7.0F), 7.0F) + 1.0F : up;
  return __fdividef(g, 1.0F + __expf((clamped ? -1.702F : -1.0F) * g)) * u;
}

/// A lane's column of the output of gates, with its biases.
class GatedColumn {
 public:
  __device__ __forceinline__ GatedColumn(const Gemm& gemm, const Tile& tile, int column)
      : clamped_(gemm.output == Output::clamped) {
    if (gemm.bias == nullptr || column >= gemm.width) return;
    const float* const of_expert = gemm.bias + 2 * std::size_t(gemm.width) * tile.expert;
    gate_bias_ = of_expert[column];
    up_bias_ = of_expert[gemm.width + column];
  }

  __device__ __forceinline__ float output(float gate, float up) const {
    return activated(clamped_, gate + gate_bias_, up + up_bias_);
  }

 private:
  bool clamped_;
  float gate_bias_ = 0.0F, up_bias_ = 0.0F;
};

}  // namespace troupe::cuda::coded_experts
