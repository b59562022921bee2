// What the GEMMs of numbers and of codes do alike with a tile of rows x 16 * vectors columns, for
// one instruction set (vec.hpp).
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

inline constexpr int max_tree_levels = 6;  // segments <= 64

/// The sums of a tile's segments, added as a tree.
template <int rows, int vectors>
struct SegmentTree {
  F16 waiting[max_tree_levels][rows][vectors];  // finished left siblings
  int level = 0;

  /// Adds what can be added to the sum of `segment`; after the last one it is the sum of all.
  TROUPE_INLINE void add(int segment, int segments, F16 (&sum)[rows][vectors]) {
    for (int bits = segment; bits & 1; bits >>= 1) {
      --level;
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) sum[r][v] = waiting[level][r][v] + sum[r][v];
    }
    if (segment + 1 == segments) return;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) waiting[level][r][v] = sum[r][v];
    ++level;
  }
};

/// Stores a tile whose first column is `column` of `columns`; `out`: where rows begin.
template <int rows, int vectors>
TROUPE_INLINE void store_tile(float* const* out, std::int64_t column, std::int64_t columns,
                              const F16 (&sum)[rows][vectors]) {
  const std::int64_t left = columns - column;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    float* const row = out[r] + column;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      if (left >= 16 * (v + 1)) {
        store(row + 16 * v, sum[r][v]);
      } else if (left > 16 * v) {
        store(row + 16 * v, sum[r][v], left - 16 * v);
      }
    }
  }
}

/// The job's row of activations, gathered if it says so.
TROUPE_INLINE const float* row_of(const GemmJob& job, std::int64_t row) {
  return job.x +
         (job.gather != nullptr ? job.gather[row] / job.gather_divisor : row) * job.x_stride;
}

/// Where rows [first_row, first_row + count) of the result begin, scattered if the job says so.
TROUPE_INLINE void find_rows_out(const GemmJob& job, std::int64_t first_row, int count,
                                 float** out) {
  for (int r = 0; r < count; ++r) {
    const std::int64_t row = first_row + r;
    out[r] = job.out + (job.scatter != nullptr ? job.scatter[row] : row) * job.out_stride;
  }
}

}  // namespace troupe::TROUPE_ISA
