#pragma once

#include <cstdint>

namespace troupe {

/// The rows of heads (MoeOps::heads_linear): every head has a matrix, and multiplies the same rows
/// at its own columns of x, to its own columns of out. In elements.
struct HeadRows {
  std::int64_t rows = 0;        ///< 0: no heads
  std::int64_t x_stride = 0;    ///< from row to row; the next head begins k later
  std::int64_t out_stride = 0;  ///< from row to row
  std::int64_t out_width = 0;   ///< from head to head
};

}  // namespace troupe
