#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/ops/weight_format.hpp"
#include "parallel/device/tensor.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// A tensor in a checkpoint: mapped memory, and the file behind it. With a format it is a matrix,
/// of which `view` has the codes; the format says in which order.
struct StoredTensor {
  Tensor view = {};          ///< read-only; need not be aligned. Codes are u8 or i32
  int file = -1;             ///< descriptor of the mapped file; -1: memory only
  int direct_file = -1;      ///< the same, read past the page cache (O_DIRECT); -1: not supported
  std::uint64_t offset = 0;  ///< of the view's first byte in the file
  const WeightFormat* format = nullptr;  ///< null: the elements are numbers of the view's dtype

  // Of a matrix with a format; companions need not be aligned.
  WeightScheme scheme = {};   ///< which rows and columns share a scale
  Shape groups{0, 0};         ///< the number of groups of rows, and of columns
  Tensor companion = {};      ///< the scales
  float tensor_scale = 1.0F;  ///< all scales are times this
  Tensor zero_points = {};    ///< empty: none
  Tensor group_index = {};    ///< i32: the group of each column; empty: in order
  /// The rows of a head, which GGUF stores in the order 0, d / 2, 1, d / 2 + 1, ...; 0: in order.
  std::int64_t interleaved_rows = 0;

  /// The dtype of the elements, which a format may have encoded: they are rounded to bf16, or, if
  /// the scales are f16, to numbers of f16, which f32 holds.
  DType dtype() const {
    if (format == nullptr) return view.dtype();
    return companion.dtype() == DType::f16 ? DType::f32 : DType::bf16;
  }
};

/// Some rows and columns of a stored matrix [n, k].
struct StoredPart {
  StoredTensor matrix;
  Slice rows = {};
  Slice cols = {};
  /// If not 0, the matrix is stored among others: by columns, its element [row, column] being the
  /// stored one [column, row * row_step]; with a format by rows, its row being the stored one
  /// row * row_step.
  std::int64_t row_step = 0;
};

/// A matrix [rows, columns] composed of parts of stored ones, one below the other; its last rows,
/// which no part fills, are zero. All parts have as many columns. Refers to memory and files of the
/// checkpoint.
struct StoredMatrix {
  std::vector<StoredPart> parts = {};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = DType::bf16;  ///< dtype in host memory: f32, bf16, or that of all parts

  std::int64_t filled_rows() const;
};

/// Copies `count` rows of the part, from its row `first` on, to `out`, dense rows of `dtype`: the
/// matrix's, or f32 (exactly) or bf16 (rounded to nearest even) converted from f32, bf16, f16 or a
/// format's codes.
void copy_rows(const StoredPart& part, std::int64_t first, std::int64_t count, DType dtype,
               void* out);

/// The matrix in host memory. Throws std::bad_alloc.
HostTensor in_host_memory(const StoredMatrix& matrix);

}  // namespace troupe
