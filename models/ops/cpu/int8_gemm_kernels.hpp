// GEMM of panels of int8 codes with rows of activations that are rounded to int8 as well (W8A8),
// for one instruction set (vec.hpp). Each segment of a row has a scale, its largest magnitude /
// 127, so an element of x . weight^T is
//
//     sum over segments, as a tree, of
//       (scale of x's segment) * the chain over the segment's runs of  fma(dot, scale, chain)
//
// where dot is an exact sum of integers. Bits depend on the matrix and its segments alone, as those
// of coded_matrix.hpp do.
//
// The instruction for four products of bytes takes one side without a sign. Panels hold code + 128,
// and a run's sum of x's codes takes 128 of each off again.
#pragma once

#include "models/ops/cpu/gemm_tiles.hpp"
#include "models/ops/cpu/kernels.hpp"

namespace troupe::TROUPE_ISA {

#ifdef __AVX512VNNI__

inline constexpr int max_int8_rows = 12;  // 12 x 32: 24 of 32 registers are sums
inline constexpr int max_streamed_rows = 6;

/// Four neighbouring codes of a row.
using Quad = std::int32_t;
/// Sixteen sums of products.
struct IntSums {
  __m512i v;
};
/// Four codes of sixteen columns.
struct Codes64 {
  __m512i v;
};

TROUPE_INLINE IntSums no_sums() { return {_mm512_setzero_si512()}; }
TROUPE_INLINE Codes64 load_codes(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
TROUPE_INLINE void add_products(IntSums& sums, const Codes64& codes, const Quad& x) {
  sums.v = _mm512_dpbusd_epi32(sums.v, codes.v, _mm512_set1_epi32(x));
}
TROUPE_INLINE F16 less(const IntSums& sums, std::int32_t offset) {
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(sums.v, _mm512_set1_epi32(offset)))};
}
TROUPE_INLINE void add(IntSums& sums, const IntSums& more) {
  sums.v = _mm512_add_epi32(sums.v, more.v);
}
TROUPE_INLINE std::int32_t total(const IntSums& sums) { return _mm512_reduce_add_epi32(sums.v); }
/// Integers that fit.
TROUPE_INLINE IntSums round_to_int(F16 x) { return {_mm512_cvtps_epi32(x.v)}; }
/// Sixteen codes as `quads` quads, each `stride` from the one before.
TROUPE_INLINE void store_quads(const IntSums& codes, std::int64_t quads, std::int64_t stride,
                               Quad* out) {
  alignas(16) Quad all[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(all), _mm512_cvtepi32_epi8(codes.v));
  for (std::int64_t i = 0; i < quads; ++i) out[i * stride] = all[i];
}

#else

inline constexpr int max_int8_rows = 4;  // 4 x 16: 8 of 16
inline constexpr int max_streamed_rows = 4;

/// Codes 0 and 2, and 1 and 3, of four, 16 bits each.
struct Quad {
  std::int32_t even, odd;
};
struct IntSums {
  __m256i lo, hi;
};
struct Codes64 {
  __m256i even[2], odd[2];
};

TROUPE_INLINE IntSums no_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
TROUPE_INLINE Codes64 load_codes(const std::uint8_t* p) {
  Codes64 codes;
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + i);
    codes.even[i] = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
    codes.odd[i] = _mm256_srli_epi16(bytes, 8);
  }
  return codes;
}
TROUPE_INLINE __m256i products(const Codes64& codes, int i, const Quad& x) {
  return _mm256_add_epi32(_mm256_madd_epi16(codes.even[i], _mm256_set1_epi32(x.even)),
                          _mm256_madd_epi16(codes.odd[i], _mm256_set1_epi32(x.odd)));
}
TROUPE_INLINE void add_products(IntSums& sums, const Codes64& codes, const Quad& x) {
  sums.lo = _mm256_add_epi32(sums.lo, products(codes, 0, x));
  sums.hi = _mm256_add_epi32(sums.hi, products(codes, 1, x));
}
TROUPE_INLINE F16 less(const IntSums& sums, std::int32_t offset) {
  const __m256i all = _mm256_set1_epi32(offset);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(sums.lo, all)),
          _mm256_cvtepi32_ps(_mm256_sub_epi32(sums.hi, all))};
}
TROUPE_INLINE void add(IntSums& sums, const IntSums& more) {
  sums.lo = _mm256_add_epi32(sums.lo, more.lo);
  sums.hi = _mm256_add_epi32(sums.hi, more.hi);
}
TROUPE_INLINE std::int32_t total(const IntSums& sums) {
  alignas(32) std::int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(sums.lo, sums.hi));
  std::int32_t sum = 0;
  for (const std::int32_t lane : lanes) sum += lane;
  return sum;
}
TROUPE_INLINE IntSums round_to_int(F16 x) {
  return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
}
TROUPE_INLINE void store_quads(const IntSums& codes, std::int64_t quads, std::int64_t stride,
                               Quad* out) {
  alignas(32) std::int32_t lanes[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), codes.lo);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 8), codes.hi);
  const auto pair = [](std::int32_t low, std::int32_t high) {
    return static_cast<std::int32_t>((static_cast<std::uint32_t>(low) & 0xffffU) |
                                     static_cast<std::uint32_t>(high) << 16);
  };
  for (std::int64_t i = 0; i < quads; ++i) {
    const std::int32_t* const four = lanes + 4 * i;
    out[i * stride] = {pair(four[0], four[2]), pair(four[1], four[3])};
  }
}

#endif

/// The rows of a tile as codes.
struct Int8Rows {
  Quad* quads;           // [quads of all runs][rows]
  std::int32_t* totals;  // [runs][rows]: 128 * the sum of the run's codes
  float* scales;         // [segments][rows]
};

/// Raises `peak`, which other threads raise, too, to `largest`, at least 0.
TROUPE_INLINE void raise(float* peak, float largest) {
  float known = 0.0F;
  __atomic_load(peak, &known, __ATOMIC_RELAXED);
  while (known < largest && !__atomic_compare_exchange(peak, &known, &largest, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

/// Rounds row `row` of `rows`. A segment with a number that is not finite gets a scale of NaN.
TROUPE_INLINE void round_row(const GemmJob& job, const float* x, int row, int rows,
                             const Int8Rows& out) {
  const std::int64_t segment_k = job.k / job.segments;
  const CodeRun* run = job.codes.runs;
  Quad* quads = out.quads + row;
  std::int32_t* totals = out.totals + row;
  for (int segment = 0; segment < job.segments; ++segment) {
    const std::int64_t end = (segment + 1) * segment_k;
    F16 largest = zero(), not_finite = zero();
    for (std::int64_t i = end - segment_k; i < end; i += 16) {
      const F16 some = load_up_to(x + i, end - i);
      largest = max(largest, max(some, zero() - some));
      not_finite = fma(some, zero(), not_finite);
    }
    const float most = reduce_max(largest);
    const float factor = most > 1e-30F ? 127.0F / most : 0.0F;
    const float nan_or_zero = reduce_add(not_finite);
    out.scales[segment * rows + row] = most / 127.0F + nan_or_zero;
    if (job.peak != nullptr) {
      raise(job.peak, nan_or_zero == 0.0F ? most : __builtin_inff());
    }
    const F16 factors = broadcast(factor);
    for (; run != job.codes.runs + job.codes.run_count && run->begin < end; ++run) {
      IntSums sum = no_sums();
      for (std::int64_t done = 0; done < run->count; done += 16) {
        const std::int64_t left = run->count - done;
        const F16 some = load_up_to(x + run->begin + done, left);
        const IntSums codes =
            round_to_int(min(max(some * factors, broadcast(-127.0F)), broadcast(127.0F)));
        const std::int64_t count = left < 16 ? (left + 3) / 4 : 4;
        store_quads(codes, count, rows, quads);
        add(sum, codes);
        quads += count * rows;
      }
      *totals = 128 * total(sum);
      totals += rows;
    }
  }
}

struct Int8Tile : PanelTile {
  using PanelTile::PanelTile;
  Int8Rows x;
};

/// `vectors` x 16 columns from column 16 * half of the panel on.
template <int rows, int vectors, int half>
void multiply_int8(const Int8Tile& tile) {
  constexpr std::int64_t prefetched = 2048;  // bytes
  SegmentTree<rows, vectors> tree;
  F16 sum[rows][vectors];
  const Quad* x = tile.x.quads;
  const std::uint8_t* p = tile.panel;
  const std::int32_t* totals = tile.x.totals;
  std::int64_t run = 0;
  for (int segment = 0; segment < tile.segments; ++segment) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[r][v] = zero();
    for (std::int64_t left = tile.segment_k; left > 0; ++run, totals += rows) {
      IntSums dots[rows][vectors];
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) dots[r][v] = no_sums();
      const std::int64_t count = tile.runs[run].count;
      for (std::int64_t i = 0; i < count; i += 4, p += 4 * panel_columns, x += rows) {
        Codes64 codes[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          const int at = v + half;
          const std::uint8_t* const from = p + (at / 2) * tile.panel_bytes + (at % 2) * 64;
          if constexpr (rows <= max_streamed_rows) {
            _mm_prefetch(reinterpret_cast<const char*>(from + prefetched), _MM_HINT_T0);
          }
          codes[v] = load_codes(from);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < vectors; ++v) add_products(dots[r][v], codes[v], x[r]);
      }
      left -= count;
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        const F16 scale = tile.scales_of(run, 16 * (v + half));
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          sum[r][v] = fma(less(dots[r][v], totals[r]), scale, sum[r][v]);
        }
      }
    }
    const float* const scales = tile.x.scales + segment * rows;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[r][v] = sum[r][v] * broadcast(scales[r]);
    tree.add(segment, tile.segments, sum);
  }
  store_tile(tile.out, tile.column + 16 * half, tile.columns, sum);
}

/// Panels that one call covers, for enough independent sums.
constexpr int int8_panels_per_call([[maybe_unused]] int rows) {
#ifdef __AVX512VNNI__
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return 1;
#endif
}

template <int rows, int panels>
void multiply_int8_panels(const Int8Tile& tile) {
#ifdef __AVX512VNNI__
  multiply_int8<rows, 2 * panels, 0>(tile);
#else
  multiply_int8<rows, 1, 0>(tile);
  multiply_int8<rows, 1, 1>(tile);
#endif
}

using Int8TileKernel = void (*)(const Int8Tile&);
/// The kernels for one to max_int8_rows rows.
struct Int8TileKernels {
  Int8TileKernel one[max_int8_rows + 1];
  Int8TileKernel several[max_int8_rows + 1];
};
template <int rows = max_int8_rows>
constexpr void fill(Int8TileKernels& kernels) {
  kernels.one[rows] = multiply_int8_panels<rows, 1>;
  kernels.several[rows] = multiply_int8_panels<rows, int8_panels_per_call(rows)>;
  if constexpr (rows > 1) fill<rows - 1>(kernels);
}
inline constexpr Int8TileKernels int8_tile_kernels = [] {
  Int8TileKernels kernels{};
  fill(kernels);
  return kernels;
}();

/// The memory that the rows of tiles take in a job's scratch, and where each tile's are.
struct Int8Scratch {
  std::int64_t quads = 0;  // of a row
  std::int64_t tile_bytes = 0;

  explicit Int8Scratch(const GemmJob& job) {
    for (std::int64_t run = 0; run < job.codes.run_count; ++run) {
      quads += (job.codes.runs[run].count + 3) / 4;
    }
    const std::int64_t row =
        quads * static_cast<std::int64_t>(sizeof(Quad)) + 4 * (job.codes.run_count + job.segments);
    tile_bytes = (row * max_int8_rows + 63) / 64 * 64;
  }
  Int8Rows rows_of(const GemmJob& job, std::int64_t tile, int rows) const {
    char* const begin = reinterpret_cast<char*>(job.scratch) + tile * tile_bytes;
    auto* const codes = reinterpret_cast<Quad*>(begin);
    auto* const totals = reinterpret_cast<std::int32_t*>(codes + quads * rows);
    return {codes, totals, reinterpret_cast<float*>(totals + job.codes.run_count * rows)};
  }
};

/// Multiplies rows [first_row, first_row + rows) as `tiles` tiles, whose sizes differ by at most
/// one.
inline void multiply_int8_rows(const GemmJob& job, const Int8Scratch& scratch,
                               std::int64_t first_row, std::int64_t rows, std::int64_t tiles) {
  const auto begin_of = [&](std::int64_t tile) { return first_row + rows * tile / tiles; };
  for (std::int64_t t = 0; t < tiles; ++t) {
    const int count = static_cast<int>(begin_of(t + 1) - begin_of(t));
    const Int8Rows rounded = scratch.rows_of(job, t, count);
    for (int r = 0; r < count; ++r) {
      round_row(job, row_of(job, begin_of(t) + r), r, count, rounded);
    }
  }
  Int8Tile tile(job);
  for (std::int64_t panel = job.panel_begin; panel < job.panel_end;) {
    tile.set_panel(job, panel);
    const int together = tiles == 1 ? int8_panels_per_call(static_cast<int>(rows)) : 1;
    const bool several = together > 1 && panel + together <= job.panel_end;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const int count = static_cast<int>(begin_of(t + 1) - begin_of(t));
      float* out[max_int8_rows];
      find_rows_out(job, begin_of(t), count, out);
      tile.out = out;
      tile.x = scratch.rows_of(job, t, count);
      (several ? int8_tile_kernels.several : int8_tile_kernels.one)[count](tile);
    }
    panel += several ? together : 1;
  }
}

void gemm_of_int8(const GemmJob& job) {
  const Int8Scratch scratch(job);
  const std::int64_t room =
      gemm_scratch_floats(job.k, job.segments) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t tiles_per_pass = room / scratch.tile_bytes;
  const std::int64_t rows = job.row_end - job.row_begin;
  const std::int64_t tiles = (rows + max_int8_rows - 1) / max_int8_rows;
  const std::int64_t passes = (tiles + tiles_per_pass - 1) / tiles_per_pass;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = rows * pass / passes, end = rows * (pass + 1) / passes;
    multiply_int8_rows(job, scratch, job.row_begin + begin, end - begin,
                       (end - begin + max_int8_rows - 1) / max_int8_rows);
  }
}

}  // namespace troupe::TROUPE_ISA
