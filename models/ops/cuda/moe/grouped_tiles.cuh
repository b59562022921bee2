// The tiles of grouped_gemm.cu: which weights and rows a block copies for one, and where its sums
// go.
#pragma once

#include <type_traits>

#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/common/transposed.cuh"
#include "models/ops/cuda/gemm/head_rows.hpp"
#include "models/ops/cuda/moe/expert_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int rows_at_once = 32;  // rows of which all threads copy one unit each

/// `rows` of x are multiplied with 128 rows of the weights. `stages` of tile_k columns are in
/// shared memory.
template <class Element_, int rows_, int stages_>
struct Tiling {
  using Element = Element_;
  static constexpr int rows = rows_, stages = stages_;
  static constexpr int columns = 128;
  static constexpr int columns_bytes = columns * row_bytes;
  static constexpr int stage_bytes = columns_bytes + rows * row_bytes;
  /// Steps that are copied ahead. Products of codes have ended when a step ends, those of bf16 when
  /// the next does.
  static constexpr int ahead = Element::has_scales ? stages - 1 : stages - 2;
  /// Rows of all tiles that may be copied or multiplied at once, of which is known where they go
  /// and, of codes, their scale.
  static constexpr int all_rows = (ahead + 2) * rows;
  static constexpr int rows_bytes = (Element::has_scales ? 2 : 1) * all_rows * 4;
};
template <class Element>
using Rows16 = Tiling<Element, 16, 6>;
template <class Element>
using Rows32 = Tiling<Element, 32, 5>;
template <class Element>
using Rows64 = Tiling<Element, 64, 4>;
template <class Element>
using Rows80 = Tiling<Element, 80, 4>;

template <class Element_>
struct Gemm {
  using Element = Element_;
  const typename Element::Stored* weights;
  const typename Element::Stored* x;
  const float *weight_scales, *x_scales;  // of codes
  const std::int32_t* offsets;
  const std::int32_t* source;
  std::uint32_t experts, n, k, top_k;
  bool gather, scatter;
  HeadRows heads;
};

/// What a tile's rows are, and what becomes of the sums.
enum class Form { plain, gated, heads };

template <class T>
std::size_t shared_bytes(std::int64_t experts) {
  return alignment + T::stages * T::stage_bytes + T::rows_bytes + tile_table_bytes(experts);
}

struct Tile {
  int expert;
  int row;     // the first sorted row
  int rows;    // at most T::rows
  int column;  // in tiles
};

template <class T>
__device__ Tile find_tile(const TileTable& table, int column_tiles, int number) {
  const int expert = table.expert_of(number);
  const int in_expert = number - table.first[expert], row_tile = in_expert / column_tiles;
  const int row = table.offsets[expert] + row_tile * T::rows;
  return {expert, row, min(T::rows, table.offsets[expert + 1] - row),
          in_expert - row_tile * column_tiles};
}

/// The columns of the output that a warp has, of each row: 16 rows of the columns' tile, where
/// gates and ups take turns in gated tiles.
template <Form form>
constexpr int warp_columns = form == Form::gated ? 8 : 16;

/// Which of a warp's columns is row `i` of its 16, with no gates: adjacent pairs of the first eight
/// rows and of the others take turns, so that a lane has four adjacent columns of a row when both
/// are transposed (store_sums).
__device__ __forceinline__ int column_in_warp(int i) { return i % 8 / 2 * 4 + i / 8 * 2 + i % 2; }

/// The matrix row for row `i` of the columns' tile. In gated tiles one thread gets the sums of a
/// gate and its up. n or more: none.
template <class T, Form form>
__device__ std::uint32_t matrix_row(const Gemm<typename T::Element>& gemm, int column_tile, int i) {
  if constexpr (form != Form::gated) {
    return column_tile * T::columns + i / 16 * 16 + column_in_warp(i % 16);
  }
  const std::uint32_t inner = gemm.n / 2;
  constexpr int half = T::columns / 2, run = 8;
  const std::uint32_t column = column_tile * half + i / (2 * run) * run + i % run;
  if (column >= inner) return gemm.n;
  return i % (2 * run) < run ? column : inner + column;
}

/// Row `row` of a tile among those of its head.
template <class Element>
__device__ __forceinline__ std::int64_t row_of_head(const Gemm<Element>& gemm, const Tile& tile,
                                                    int row) {
  return tile.row - tile.expert * gemm.heads.rows + row;
}

/// Copies four bytes like copy_async.
__device__ __forceinline__ void copy_word_async(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/// One thread's copies of a tile: a unit of every rows_at_once-th row.
template <class T, Form form>
class Copies {
 public:
  using Element = typename T::Element;
  static constexpr int unit_elements = Element::unit_elements;

  __device__ Copies(const Gemm<Element>& gemm, std::uint32_t stages_at)
      : gemm_(gemm),
        row_(threadIdx.x / units),
        unit_(threadIdx.x % units),
        rows_at_(stages_at + T::stages * T::stage_bytes) {
    to_ = stages_at + row_ * row_bytes + ((unit_ ^ (row_ % units)) * unit_bytes);
  }

  __device__ void open(const Tile& tile) {
    const std::size_t matrix = std::size_t{gemm_.n} * gemm_.k;
    weights_ = gemm_.weights + tile.expert * matrix + unit_ * unit_elements;
#pragma unroll
    for (int i = 0; i < column_copies; ++i) {
      const std::uint32_t row = matrix_row<T, form>(gemm_, tile.column, row_ + i * rows_at_once);
      column_[i] = row < gemm_.n ? row * gemm_.k : none;
    }
#pragma unroll
    for (int i = 0; i < row_copies; ++i) {
      const int row = row_ + i * rows_at_once;
      if constexpr (form == Form::heads) {
        x_[i] = row < tile.rows ? gemm_.x + row_of_head(gemm_, tile, row) * gemm_.heads.x_stride +
                                      tile.expert * gemm_.k + unit_ * unit_elements
                                : nullptr;
      } else {
        x_[i] = unit_of_row(gemm_, tile, row, unit_);
      }
    }
    if constexpr (form != Form::heads) copy_row_words(tile);
  }

  /// Copies columns [k, k + tile_k) of the weights to a stage.
  __device__ void copy_weights(std::uint32_t k, int stage) const {
    const bool in_k = k + unit_ * unit_elements < gemm_.k;
    const std::uint32_t to = to_ + stage * T::stage_bytes;
#pragma unroll
    for (int i = 0; i < column_copies; ++i) {
      const bool there = in_k && column_[i] != none;
      copy_async(to + i * rows_at_once * row_bytes,
                 there ? weights_ + column_[i] + k : gemm_.weights, there);
    }
  }
  /// The same of x.
  __device__ void copy_rows(std::uint32_t k, int stage) const {
    const bool in_k = k + unit_ * unit_elements < gemm_.k;
    const std::uint32_t to = to_ + stage * T::stage_bytes;
#pragma unroll
    for (int i = 0; i < row_copies; ++i) {
      if (T::rows % rows_at_once != 0 && row_ + i * rows_at_once >= T::rows) break;
      const bool there = in_k && x_[i] != nullptr;
      copy_async(to + T::columns_bytes + i * rows_at_once * row_bytes, there ? x_[i] + k : gemm_.x,
                 there);
    }
  }

 private:
  /// Copies what is known of a tile's rows to the next of the places for it. The tile that had it
  /// is done: of the others one is multiplied, and at most T::ahead steps are copied.
  __device__ void copy_row_words(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < row_copies; ++i) {
      const int row = row_ + i * rows_at_once;
      if (unit_ > 1 || row >= tile.rows) break;
      const std::uint32_t to = rows_at_ + (next_rows_ + row) * 4;
      if (unit_ == 0 && gemm_.scatter) copy_word_async(to, gemm_.source + tile.row + row);
      if (Element::has_scales && unit_ == 1) {
        copy_word_async(to + T::all_rows * 4, gemm_.x_scales + row_of_x(gemm_, tile.row + row));
      }
    }
    next_rows_ = next_rows_ + T::rows == T::all_rows ? 0 : next_rows_ + T::rows;
  }

  static constexpr int column_copies = T::columns / rows_at_once;
  static constexpr int row_copies = (T::rows + rows_at_once - 1) / rows_at_once;
  static constexpr std::uint32_t none = ~0U;

  using Stored = typename Element::Stored;

  const Gemm<Element>& gemm_;
  int row_, unit_, next_rows_ = 0;
  std::uint32_t to_, rows_at_;
  const Stored* weights_ = nullptr;
  std::uint32_t column_[column_copies];
  const Stored* x_[row_copies];
};

/// A warp's first column of the output; `first` is its first row of the columns' tile.
template <class T, Form form>
__device__ __forceinline__ int first_column(const Tile& tile, int first) {
  constexpr int share = 16 / warp_columns<form>;
  return (tile.column * T::columns + first) / share;
}

/// What is known of a tile's rows, in shared memory, and the scales of a thread's two rows of the
/// weights.
struct RowWords {
  const std::int32_t* targets;  // with scatter
  const float* scales;          // of codes
  float upper, lower;           // of codes
};

template <class T, Form form>
__device__ __forceinline__ RowWords row_words(const Gemm<typename T::Element>& gemm,
                                              const Tile& tile, int first,
                                              const unsigned char* rows) {
  const auto* const targets = reinterpret_cast<const std::int32_t*>(rows);
  const auto* const scales = reinterpret_cast<const float*>(rows) + T::all_rows;
  if constexpr (!T::Element::has_scales) return {targets, scales, 1.0F, 1.0F};
  const int width = static_cast<int>(form == Form::gated ? gemm.n / 2 : gemm.n);
  const int row = threadIdx.x % 32 / 4, begin = first_column<T, form>(tile, first);
  const float* const all = gemm.weight_scales + std::size_t{gemm.n} * tile.expert;
  if constexpr (form == Form::gated) {
    const int there = min(begin + row, width - 1);
    return {targets, scales, all[there], all[width + there]};
  }
  return {targets, scales, all[min(begin + column_in_warp(row), width - 1)],
          all[min(begin + column_in_warp(row + 8), width - 1)]};
}

/// The output's row for row `row` of a tile.
template <Form form, class Gemm, class Out>
__device__ __forceinline__ Out* output_row(const Gemm& gemm, const Tile& tile, int row,
                                           const RowWords& words, Out* out) {
  if constexpr (form == Form::heads) {
    return out + row_of_head(gemm, tile, row) * gemm.heads.out_stride +
           tile.expert * gemm.heads.out_width;
  } else {
    const std::size_t width = form == Form::gated ? gemm.n / 2 : gemm.n;
    return out + (gemm.scatter ? words.targets[row] : tile.row + row) * width;
  }
}

/// Writes this thread's sums, in wgmma's layout; `first` is its warp's first row of the columns'
/// tile. bf16 is transposed in the warp, so that a lane writes adjacent columns of one row.
template <class T, Form form, class Out>
__device__ void store_sums(const Gemm<typename T::Element>& gemm, const Tile& tile, int first,
                           const float (&sums)[T::rows / 2], const RowWords& words, Out* out) {
  constexpr bool gated = form == Form::gated;
  const int width = static_cast<int>(gated ? gemm.n / 2 : gemm.n);
  const int line = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
  const int begin = first_column<T, form>(tile, first);
#pragma unroll
  for (int j = 0; j < T::rows / 8; ++j) {
    if (8 * j >= tile.rows) break;
    float upper[2], lower[2];  // of two rows
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      upper[i] = sums[4 * j + i], lower[i] = sums[4 * j + 2 + i];
      if constexpr (T::Element::has_scales) {
        const float of_row = words.scales[8 * j + 2 * pair + i];
        upper[i] = upper[i] * of_row * words.upper;
        lower[i] = lower[i] * of_row * words.lower;
      }
      if constexpr (gated) upper[i] = fast_silu(upper[i]) * lower[i];
    }
    if constexpr (std::is_same_v<Out, bf16>) {
      constexpr int columns = warp_columns<form> / 4;
      const std::uint32_t left = transposed(upper[0], upper[1]);
      const std::uint32_t right = gated ? 0U : transposed(lower[0], lower[1]);
      const int row = 8 * j + line, column = begin + columns * pair;
      if (row < tile.rows && column < width) {
        Out* const to = output_row<form>(gemm, tile, row, words, out) + column;
        if constexpr (gated) {
          *reinterpret_cast<std::uint32_t*>(to) = left;
        } else {
          *reinterpret_cast<uint2*>(to) = {left, right};
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * j + 2 * pair + i;
        if (row >= tile.rows) break;
        Out* const to = output_row<form>(gemm, tile, row, words, out) + begin;
        const auto put = [&](int at, float value) {
          if (begin + at < width) to[at] = value;
        };
        if constexpr (gated) {
          put(line, upper[i]);
        } else {
          put(column_in_warp(line), upper[i]);
          put(column_in_warp(line + 8), lower[i]);
        }
      }
    }
  }
}

}  // namespace troupe::cuda
