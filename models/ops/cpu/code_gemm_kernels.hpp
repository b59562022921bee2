// GEMM of panels of codes (CodePanels) with rows, for one instruction set (vec.hpp). What is added
// in which order is in models/ops/coded_matrix.hpp.
//
// A few rows read codes as they go. For more, each panel is turned into floats once, and tiles of
// rows are multiplied with those: the same numbers in the same order.
#pragma once

#include "models/ops/cpu/code_vec.hpp"
#include "models/ops/cpu/gemm_tiles.hpp"
#include "models/ops/cpu/kernels.hpp"

namespace troupe::TROUPE_ISA {

#ifdef __AVX512F__
inline constexpr int max_code_rows = 6;    // beyond, decoding once beats decoding for each tile
inline constexpr int max_float_rows = 12;  // 12 x 32: 24 of 32 registers are accumulators
#else
inline constexpr int max_code_rows = 2;
inline constexpr int max_float_rows = 4;  // 4 x 16: 8 of 16
#endif
static_assert(max_float_rows > max_code_rows);
/// How far ahead codes are asked for: panels begin at new pages, which hardware does not foresee.
inline constexpr std::int64_t prefetch_bytes = 1024;

struct CodeTile : PanelTile {
  using PanelTile::PanelTile;
  const float* x;              // [k][rows]
  const std::uint16_t* zeros;  // of the first panel, [runs][32]; null: none
};

/// The elements of `vectors` x 16 columns for the rows of a tile.
template <int rows, int vectors>
struct Sums {
  F16 at[rows][vectors];

  TROUPE_INLINE void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) at[r][v] = zero();
  }
  /// Adds the products of one column of the matrix.
  TROUPE_INLINE void add(const float* x, const F16* weights) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const F16 a = broadcast(x[r]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) at[r][v] = fma(a, weights[v], at[r][v]);
    }
  }
};

/// Codes of a run, for kernels that read codes.
template <CodeKind kind, bool has_zeros, int rows, int vectors>
struct CodeReader {
  static constexpr std::int64_t bytes_of(std::int64_t count) {
    if constexpr (is_packed(kind)) return (count + 7) / 8 * 128;
    return count * panel_columns;
  }

  TROUPE_INLINE static void multiply(const std::uint8_t* p, std::int64_t stride, const F16* zeros,
                                     std::int64_t count, const float* x,
                                     Sums<rows, vectors>& sums) {
    if constexpr (is_packed(kind)) {
      for (; count > 0; count -= 8, p += 128) {
        Nibbles words[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          const std::uint8_t* const from = p + (v / 2) * stride + (v % 2) * 64;
          words[v] = load_nibbles(from);
          _mm_prefetch(reinterpret_cast<const char*>(from + prefetch_bytes), _MM_HINT_T0);
        }
        const auto step = [&] {
          F16 b[vectors];
#pragma GCC unroll 8
          for (int v = 0; v < vectors; ++v) {
            b[v] = next_of<kind>(words[v]);
            if constexpr (has_zeros) b[v] = b[v] - zeros[v];
          }
          sums.add(x, b);
          x += rows;
        };
        if (count >= 8) {
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) step();
        } else {
          for (std::int64_t i = 0; i < count; ++i) step();
        }
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i, p += panel_columns, x += rows) {
        F16 b[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          const std::uint8_t* const from = p + (v / 2) * stride + (v % 2) * 16;
          if (v % 2 == 0) {
            _mm_prefetch(reinterpret_cast<const char*>(from + prefetch_bytes), _MM_HINT_T0);
          }
          b[v] = load_bytes<kind>(from);
          if constexpr (has_zeros) b[v] = b[v] - zeros[v];
        }
        sums.add(x, b);
      }
    }
  }
};

/// The same of a panel that is floats already, zero points included.
template <int rows, int vectors>
struct FloatReader {
  static constexpr std::int64_t bytes_of(std::int64_t count) {
    return count * panel_columns * static_cast<std::int64_t>(sizeof(float));
  }
  TROUPE_INLINE static void multiply(const std::uint8_t* p, std::int64_t, const F16*,
                                     std::int64_t count, const float* x,
                                     Sums<rows, vectors>& sums) {
    const auto* w = reinterpret_cast<const float*>(p);
    for (std::int64_t i = 0; i < count; ++i, w += panel_columns, x += rows) {
      F16 b[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) b[v] = load(w + 16 * v);
      sums.add(x, b);
    }
  }
};

template <class Reader, bool has_zeros, int rows, int vectors, int half>
void multiply_codes(const CodeTile& tile) {
  SegmentTree<rows, vectors> tree;
  Sums<rows, vectors> sum, part;
  const float* x = tile.x;
  const std::uint8_t* p = tile.panel;
  std::int64_t run = 0;
  for (int segment = 0; segment < tile.segments; ++segment) {
    sum.clear();
    for (std::int64_t left = tile.segment_k; left > 0; ++run) {
      const std::int64_t count = tile.runs[run].count;
      F16 zeros[vectors];
      if constexpr (has_zeros) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v)
          zeros[v] = load(tile.zeros + tile.place(run, 16 * (v + half)));
      }
      part.clear();
      Reader::multiply(p, tile.panel_bytes, zeros, count, x, part);
      x += count * rows;
      p += Reader::bytes_of(count);
      left -= count;
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        const F16 scale = tile.scales_of(run, 16 * (v + half));
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) sum.at[r][v] = fma(part.at[r][v], scale, sum.at[r][v]);
      }
    }
    tree.add(segment, tile.segments, sum.at);
  }
  store_tile(tile.out, tile.column + 16 * half, tile.columns, sum.at);
}

/// Panels that one call covers, for enough independent chains of FMAs.
constexpr int code_panels_per_call([[maybe_unused]] int rows) {
#ifdef __AVX512F__
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return 1;
#endif
}

using CodeTileKernel = void (*)(const CodeTile&);

/// The kernels for one to max_code_rows rows.
struct CodeTileKernels {
  CodeTileKernel one[max_code_rows + 1];
  CodeTileKernel several[max_code_rows + 1];
};

template <CodeKind kind, bool has_zeros, int rows = max_code_rows>
constexpr void fill(CodeTileKernels& kernels) {
  constexpr int wide = 2 * code_panels_per_call(rows);
  kernels.one[rows] = multiply_codes<CodeReader<kind, has_zeros, rows, 2>, has_zeros, rows, 2, 0>;
  kernels.several[rows] =
      multiply_codes<CodeReader<kind, has_zeros, rows, wide>, has_zeros, rows, wide, 0>;
  if constexpr (rows > 1) fill<kind, has_zeros, rows - 1>(kernels);
}
template <CodeKind kind, bool has_zeros>
inline constexpr CodeTileKernels code_tile_kernels = [] {
  CodeTileKernels kernels{};
  fill<kind, has_zeros>(kernels);
  return kernels;
}();

inline const CodeTileKernels& code_kernels(CodeKind kind, bool has_zeros) {
  switch (kind) {
    case CodeKind::int8:
      return has_zeros ? code_tile_kernels<CodeKind::int8, true>
                       : code_tile_kernels<CodeKind::int8, false>;
    case CodeKind::int4:
      return has_zeros ? code_tile_kernels<CodeKind::int4, true>
                       : code_tile_kernels<CodeKind::int4, false>;
    case CodeKind::e4m3:
      return code_tile_kernels<CodeKind::e4m3, false>;
    default:
      return code_tile_kernels<CodeKind::e2m1, false>;
  }
}

/// The kernels of float panels.
template <int rows>
void multiply_floats(const CodeTile& tile) {
#ifdef __AVX512F__
  multiply_codes<FloatReader<rows, 2>, false, rows, 2, 0>(tile);
#else
  CodeTile other = tile;
  multiply_codes<FloatReader<rows, 1>, false, rows, 1, 0>(tile);
  other.panel += 16 * sizeof(float);
  multiply_codes<FloatReader<rows, 1>, false, rows, 1, 1>(other);
#endif
}
struct FloatTileKernels {
  CodeTileKernel at[max_float_rows + 1];
};
template <int rows = max_float_rows>
constexpr void fill(FloatTileKernels& kernels) {
  kernels.at[rows] = multiply_floats<rows>;
  if constexpr (rows > 1) fill<rows - 1>(kernels);
}
inline constexpr FloatTileKernels float_tile_kernels = [] {
  FloatTileKernels kernels{};
  fill(kernels);
  return kernels;
}();

/// Turns a panel of codes into floats [k][32], less their zero points.
template <CodeKind kind>
void widen_codes(const CodePanels& codes, const std::uint8_t* p, const std::uint16_t* zeros,
                 float* out) {
  for (std::int64_t run = 0; run < codes.run_count; ++run) {
    F16 zero_points[2] = {zero(), zero()};
    if (zeros != nullptr) {
      zero_points[0] = load(zeros + run * panel_columns);
      zero_points[1] = load(zeros + run * panel_columns + 16);
    }
    const std::int64_t count = codes.runs[run].count;
    if constexpr (is_packed(kind)) {
      for (std::int64_t begin = 0; begin < count; begin += 8, p += 128) {
        Nibbles low = load_nibbles(p), high = load_nibbles(p + 64);
        for (std::int64_t i = begin; i < count && i < begin + 8; ++i, out += panel_columns) {
          store(out, next_of<kind>(low) - zero_points[0]);
          store(out + 16, next_of<kind>(high) - zero_points[1]);
        }
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i, p += panel_columns, out += panel_columns) {
        store(out, load_bytes<kind>(p) - zero_points[0]);
        store(out + 16, load_bytes<kind>(p + 16) - zero_points[1]);
      }
    }
  }
}

inline void widen_codes(const CodePanels& codes, const std::uint8_t* panel,
                        const std::uint16_t* zeros, float* out) {
  switch (codes.kind) {
    case CodeKind::int8:
      return widen_codes<CodeKind::int8>(codes, panel, zeros, out);
    case CodeKind::int4:
      return widen_codes<CodeKind::int4>(codes, panel, zeros, out);
    case CodeKind::e4m3:
      return widen_codes<CodeKind::e4m3>(codes, panel, zeros, out);
    default:
      return widen_codes<CodeKind::e2m1>(codes, panel, zeros, out);
  }
}

/// Copies the rows of one tile to [k][rows].
inline void interleave(const GemmJob& job, std::int64_t first_row, int rows, float* out) {
  constexpr std::int64_t block = 256;  // what lies together stays in the first-level cache
  for (std::int64_t begin = 0; begin < job.k; begin += block) {
    const std::int64_t end = begin + block < job.k ? begin + block : job.k;
    for (int r = 0; r < rows; ++r) {
      const float* const x = row_of(job, first_row + r);
      for (std::int64_t i = begin; i < end; ++i) out[i * rows + r] = x[i];
    }
  }
}

/// Multiplies rows [first_row, first_row + rows) as `tiles` tiles, whose sizes differ by at most
/// one.
inline void multiply_code_rows(const GemmJob& job, std::int64_t first_row, std::int64_t rows,
                               std::int64_t tiles, std::int64_t tile_floats, float* wide_panel) {
  const CodePanels& codes = job.codes;
  const bool widens = tiles > 1 || rows > max_code_rows;
  const CodeTileKernels& kernels = code_kernels(codes.kind, codes.zero_points != nullptr);
  const bool copies = widens || rows > 1;
  for (std::int64_t t = 0; copies && t < tiles; ++t) {
    const std::int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
    interleave(job, first_row + begin, static_cast<int>(end - begin),
               job.scratch + t * tile_floats);
  }
  CodeTile tile(job);
  const auto* zeros = static_cast<const std::uint16_t*>(codes.zero_points);
  const std::int64_t panel_scales = codes.run_count * panel_columns;
  for (std::int64_t panel = job.panel_begin; panel < job.panel_end;) {
    tile.set_panel(job, panel);
    tile.zeros = zeros != nullptr ? zeros + panel * panel_scales : nullptr;
    if (widens) {
      widen_codes(codes, tile.panel, tile.zeros, wide_panel);
      tile.panel = reinterpret_cast<const std::uint8_t*>(wide_panel);
    }
    int step = 1;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t begin = rows * t / tiles, end = rows * (t + 1) / tiles;
      const int count = static_cast<int>(end - begin);
      float* out[max_float_rows];
      find_rows_out(job, first_row + begin, count, out);
      tile.out = out;
      tile.x = copies ? job.scratch + t * tile_floats : row_of(job, first_row);
      if (widens) {
        float_tile_kernels.at[count](tile);
        continue;
      }
      const int together = code_panels_per_call(count);
      const bool several = together > 1 && panel + together <= job.panel_end;
      if (several) step = together;
      (several ? kernels.several : kernels.one)[count](tile);
    }
    panel += step;
  }
}

void gemm_of_codes(const GemmJob& job) {
  const std::int64_t tile_floats = job.k * max_float_rows;
  const std::int64_t panel_floats = job.k * panel_columns;
  GemmJob shifted = job;
  shifted.scratch = job.scratch + panel_floats;
  const std::int64_t room = gemm_scratch_floats(job.k, job.segments) - panel_floats;
  const std::int64_t tiles_per_pass = room / tile_floats;
  const std::int64_t rows = job.row_end - job.row_begin;
  const std::int64_t most = rows <= max_code_rows ? max_code_rows : max_float_rows;
  const std::int64_t tiles = (rows + most - 1) / most;
  const std::int64_t passes = (tiles + tiles_per_pass - 1) / tiles_per_pass;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = rows * pass / passes, end = rows * (pass + 1) / passes;
    const std::int64_t count = (end - begin + most - 1) / most;
    multiply_code_rows(shifted, job.row_begin + begin, end - begin, count, tile_floats,
                       job.scratch);
  }
}

}  // namespace troupe::TROUPE_ISA
