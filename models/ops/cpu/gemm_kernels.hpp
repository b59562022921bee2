// GEMM of packed panels with rows, for one instruction set (vec.hpp).
//
// Rows are taken in tiles of up to max_tile_rows. A tile is first copied into chunks
// [max_chunk_k][rows][chunk_stride] whose stride is a constant: addresses become one register plus
// constants, gathered rows cost nothing more, and rows a power of two apart do not compete for the
// same cache sets. The micro-kernel then keeps tile rows x columns in registers over a whole
// segment of k, so each element is one chain of FMAs.
#pragma once

#include "models/ops/cpu/gemm_tiles.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

#ifdef __AVX512F__
inline constexpr int max_tile_rows = 14;  // 14 x 32: 28 of 32 registers are accumulators
// Widening bf16 overlaps with the FMAs: 105 GFLOP/s at N = K = 2048, M = 512 on Zen 4, and 94 with
// a panel widened once, which displaces the rows in the second-level cache.
inline constexpr bool widens_panels = false;
#else
inline constexpr int max_tile_rows = 6;  // 6 x 16: 12 of 16
// A half panel of bf16 is loaded whole; from three tiles on, widening it once is cheaper.
inline constexpr bool widens_panels = true;
#endif

inline constexpr std::int64_t max_chunk_k = 256;
inline constexpr std::int64_t chunk_stride = max_chunk_k + 16;

struct Tile {
  const float* rows;          // packed chunks
  const void* panel;          // the first panel
  std::int64_t panel_stride;  // elements from panel to panel
  std::int64_t segment_k;
  int segments;
  float* const* out;     // row starts
  std::int64_t column;   // first column of the panel
  std::int64_t columns;  // n
};

inline std::int64_t chunks_per_segment(std::int64_t segment_k) {
  return (segment_k + max_chunk_k - 1) / max_chunk_k;
}

/// Loads one row of weights, `vectors` x 16 columns starting in half `half` of the first panel.
template <int vectors, int half>
TROUPE_INLINE void load_weights(const float* p, std::int64_t stride, F16* out) {
  if constexpr (vectors == 1) {
    out[0] = load(p + 16 * half);
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v += 2) {
      out[v] = load(p + (v / 2) * stride);
      out[v + 1] = load(p + (v / 2) * stride + 16);
    }
  }
}
template <int vectors, int half>
TROUPE_INLINE void load_weights(const std::uint16_t* p, std::int64_t stride, F16* out) {
  if constexpr (vectors == 1) {
    F16 both[2];
    load_pairs(p, both[0], both[1]);
    out[0] = both[half];
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v += 2) load_pairs(p + (v / 2) * stride, out[v], out[v + 1]);
  }
}

template <class Weight, int rows, int vectors, int half>
void multiply_tile(const Tile& tile) {
  SegmentTree<rows, vectors> tree;
  F16 sum[rows][vectors];
  const float* x = tile.rows;
  const auto* w = static_cast<const Weight*>(tile.panel);
  const std::int64_t stride = tile.panel_stride;
  for (int segment = 0; segment < tile.segments; ++segment) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[r][v] = zero();
    for (std::int64_t left = tile.segment_k; left > 0; left -= max_chunk_k) {
      const std::int64_t count = left < max_chunk_k ? left : max_chunk_k;
      for (std::int64_t k = 0; k < count; ++k) {
        F16 b[vectors];
        load_weights<vectors, half>(w, stride, b);
        w += panel_columns;
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const F16 a = broadcast(x[r * chunk_stride + k]);
#pragma GCC unroll 8
          for (int v = 0; v < vectors; ++v) sum[r][v] = fma(a, b[v], sum[r][v]);
        }
      }
      x += rows * chunk_stride;
    }
    tree.add(segment, tile.segments, sum);
  }
  store_tile(tile.out, tile.column + 16 * half, tile.columns, sum);
}

using TileKernel = void (*)(const Tile&);

/// Panels that one kernel call covers for `rows` rows: few rows need several panels side by side
/// for enough independent chains of FMAs.
constexpr int panels_per_call(int rows) {
#ifdef __AVX512F__
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

/// Multiplies one panel.
template <class Weight, int rows>
void multiply_panel(const Tile& tile) {
#ifdef __AVX512F__
  multiply_tile<Weight, rows, 2, 0>(tile);
#else
  if constexpr (rows <= 3) {
    multiply_tile<Weight, rows, 2, 0>(tile);
  } else {
    multiply_tile<Weight, rows, 1, 0>(tile);
    multiply_tile<Weight, rows, 1, 1>(tile);
  }
#endif
}

/// Multiplies panels_per_call(rows) panels.
template <class Weight, int rows>
void multiply_panels(const Tile& tile) {
  if constexpr (panels_per_call(rows) == 1) {
    multiply_panel<Weight, rows>(tile);
  } else {
    multiply_tile<Weight, rows, 2 * panels_per_call(rows), 0>(tile);
  }
}

/// The kernels for each number of rows, 1 to max_tile_rows.
struct TileKernels {
  TileKernel one[max_tile_rows + 1];
  TileKernel several[max_tile_rows + 1];
};

template <class Weight, int rows = max_tile_rows>
constexpr void fill(TileKernels& kernels) {
  kernels.one[rows] = multiply_panel<Weight, rows>;
  kernels.several[rows] = multiply_panels<Weight, rows>;
  if constexpr (rows > 1) fill<Weight, rows - 1>(kernels);
}
template <class Weight>
inline constexpr TileKernels tile_kernels = [] {
  TileKernels kernels{};
  fill<Weight>(kernels);
  return kernels;
}();

/// Copies the rows of one tile into its chunks.
inline void pack_tile(const GemmJob& job, std::int64_t first_row, int rows, float* packed) {
  const std::int64_t segment_k = job.k / job.segments;
  for (int r = 0; r < rows; ++r) {
    const float* x = row_of(job, first_row + r);
    float* chunk = packed + r * chunk_stride;
    for (int segment = 0; segment < job.segments; ++segment) {
      for (std::int64_t left = segment_k; left > 0; left -= max_chunk_k) {
        const std::int64_t count = left < max_chunk_k ? left : max_chunk_k;
        std::int64_t i = 0;
        for (; i + 16 <= count; i += 16) store(chunk + i, load(x + i));
        if (i < count) store(chunk + i, load(x + i, count - i), count - i);
        x += count;
        chunk += rows * chunk_stride;
      }
    }
  }
}

inline void widen_panel(const std::uint16_t* panel, std::int64_t k, float* out) {
  for (std::int64_t i = 0; i < k; ++i) {
    F16 a, b;
    load_pairs(panel + i * panel_columns, a, b);
    store(out + i * panel_columns, a);
    store(out + i * panel_columns + 16, b);
  }
}

/// Multiplies rows [first_row, first_row + rows) as `tiles` tiles, whose sizes differ by at most
/// one.
inline void multiply_rows(const GemmJob& job, std::int64_t first_row, std::int64_t rows,
                          std::int64_t tiles, std::int64_t tile_floats, float* wide_panel) {
  const bool narrow = job.dtype == DType::bf16;
  const std::int64_t panel_stride = job.k * panel_columns;
  const auto* bytes = static_cast<const char*>(job.panels);
  const std::int64_t panel_bytes = panel_stride * (narrow ? 2 : 4);
  const TileKernels& stored = narrow ? tile_kernels<std::uint16_t> : tile_kernels<float>;
  const bool widen = widens_panels && narrow && tiles >= 3;
  const TileKernels& kernels = widen ? tile_kernels<float> : stored;

  Tile tile{nullptr, nullptr, panel_stride, job.k / job.segments, job.segments, nullptr, 0, job.n};
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
    pack_tile(job, first_row + begin, static_cast<int>(end - begin), job.scratch + t * tile_floats);
  }
  for (std::int64_t panel = job.panel_begin; panel < job.panel_end;) {
    tile.panel = bytes + panel * panel_bytes;
    tile.column = panel * panel_columns;
    if (widen) {
      widen_panel(static_cast<const std::uint16_t*>(tile.panel), job.k, wide_panel);
      tile.panel = wide_panel;
    }
    int step = 1;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
      const int count = static_cast<int>(end - begin);
      float* out[max_tile_rows];
      find_rows_out(job, first_row + begin, count, out);
      tile.out = out;
      tile.rows = job.scratch + t * tile_floats;
      const int together = panels_per_call(count);
      const bool several = tiles == 1 && together > 1 && panel + together <= job.panel_end;
      if (several) step = together;
      (several ? kernels.several : kernels.one)[count](tile);
    }
    panel += step;
  }
}

void gemm(const GemmJob& job) {
  const std::int64_t chunks = job.segments * chunks_per_segment(job.k / job.segments);
  const std::int64_t tile_floats = chunks * max_tile_rows * chunk_stride;
  const std::int64_t panel_floats = job.k * panel_columns;
  float* wide_panel = job.scratch;
  GemmJob shifted = job;
  shifted.scratch = job.scratch + panel_floats;
  const std::int64_t room = gemm_scratch_floats(job.k, job.segments) - panel_floats;
  const std::int64_t tiles_per_pass = room / tile_floats;

  const std::int64_t rows = job.row_end - job.row_begin;
  const std::int64_t tiles = (rows + max_tile_rows - 1) / max_tile_rows;
  const std::int64_t passes = (tiles + tiles_per_pass - 1) / tiles_per_pass;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = rows * pass / passes, end = rows * (pass + 1) / passes;
    const std::int64_t count = (end - begin + max_tile_rows - 1) / max_tile_rows;
    multiply_rows(shifted, job.row_begin + begin, end - begin, count, tile_floats, wide_panel);
  }
}

}  // namespace troupe::TROUPE_ISA
