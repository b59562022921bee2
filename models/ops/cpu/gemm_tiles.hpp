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

/// What a tile of a panel of codes (CodePanels) is multiplied with and where to, but for its rows.
struct PanelTile {
  const std::uint8_t* panel;  // the first panel: codes, or floats [k][32]
  std::int64_t panel_bytes;   // from panel to panel
  const void* scales;         // of the first panel, [runs][32]
  bool narrow_scales;         // bf16, else f32
  const CodeRun* runs;
  std::int64_t run_count;
  std::int64_t segment_k;
  int segments;
  float* const* out;     // row starts
  std::int64_t column;   // first column of the panel
  std::int64_t columns;  // n

  explicit PanelTile(const GemmJob& job)
      : panel_bytes(job.codes.panel_bytes),
        narrow_scales(job.codes.scale_dtype == DType::bf16),
        runs(job.codes.runs),
        run_count(job.codes.run_count),
        segment_k(job.k / job.segments),
        segments(job.segments),
        columns(job.n) {}

  /// Goes to a panel of the job.
  void set_panel(const GemmJob& job, std::int64_t at) {
    panel = static_cast<const std::uint8_t*>(job.panels) + at * panel_bytes;
    scales = static_cast<const char*>(job.codes.scales) +
             at * run_count * panel_columns * (narrow_scales ? 2 : 4);
    column = at * panel_columns;
  }
  /// The place of a run's scales, or zero points, of sixteen columns from `of_column` on.
  TROUPE_INLINE std::int64_t place(std::int64_t run, int of_column) const {
    return (of_column / panel_columns * run_count + run) * panel_columns +
           of_column % panel_columns;
  }
  TROUPE_INLINE F16 scales_of(std::int64_t run, int of_column) const {
    const std::int64_t at = place(run, of_column);
    return narrow_scales ? load(static_cast<const std::uint16_t*>(scales) + at)
                         : load(static_cast<const float*>(scales) + at);
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
