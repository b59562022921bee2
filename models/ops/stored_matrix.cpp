#include "models/ops/stored_matrix.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "models/ops/unaligned.hpp"

namespace troupe {
namespace {

float as_float(float value) { return value; }
float as_float(BFloat16 value) { return to_float(value); }
float as_float(std::uint16_t half) { return half_to_float(half); }

void put(float value, float& to) { to = value; }
void put(float value, BFloat16& to) { to = to_bfloat16(value); }

template <class From, class To>
void convert_row(const std::byte* from, std::int64_t count, To* to) {
  for (std::int64_t i = 0; i < count; ++i) put(as_float(load_unaligned<From>(from, i)), to[i]);
}

template <class To>
void convert_row(const std::byte* from, DType dtype, std::int64_t count, To* to) {
  if (dtype == DType::bf16) {
    convert_row<BFloat16>(from, count, to);
  } else if (dtype == DType::f16) {
    convert_row<std::uint16_t>(from, count, to);
  } else {
    convert_row<float>(from, count, to);
  }
}

void decode_rows(const StoredPart& part, std::int64_t first, std::int64_t count, DType dtype,
                 void* out) {
  const std::int64_t columns = part.cols.count;
  const std::int64_t step = std::max<std::int64_t>(part.row_step, 1);
  std::vector<float> decoded(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < count; ++row) {
    part.matrix.format->decode(part.matrix, (part.rows.begin + first + row) * step, part.cols.begin,
                               columns, decoded.data());
    const auto* const from = reinterpret_cast<const std::byte*>(decoded.data());
    if (dtype == DType::bf16) {
      convert_row<float>(from, columns, static_cast<BFloat16*>(out) + row * columns);
    } else {
      convert_row<float>(from, columns, static_cast<float*>(out) + row * columns);
    }
  }
}

/// copy_rows of a part that is stored by columns. Blocks of columns are as many cache lines.
template <class From, class To>
void transpose_rows(const StoredPart& part, std::int64_t first, std::int64_t count, To* out) {
  constexpr std::int64_t block = 64;
  const auto* data = static_cast<const std::byte*>(part.matrix.view.data());
  const std::int64_t stored_columns = part.matrix.view[1], columns = part.cols.count;
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t end = std::min(begin + block, columns);
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t at = (part.rows.begin + first + row) * part.row_step;
      To* const to = out + row * columns;
      for (std::int64_t column = begin; column < end; ++column) {
        const std::int64_t from = (part.cols.begin + column) * stored_columns + at;
        if constexpr (std::is_same_v<From, To>) {
          to[column] = load_unaligned<From>(data, from);
        } else {
          put(as_float(load_unaligned<From>(data, from)), to[column]);
        }
      }
    }
  }
}

template <class To>
void transpose_rows_of(const StoredPart& part, std::int64_t first, std::int64_t count, To* out) {
  const DType dtype = part.matrix.view.dtype();
  if (dtype == DType::bf16) {
    transpose_rows<BFloat16>(part, first, count, out);
  } else if (dtype == DType::f16) {
    transpose_rows<std::uint16_t>(part, first, count, out);
  } else {
    transpose_rows<float>(part, first, count, out);
  }
}

void transpose_rows(const StoredPart& part, std::int64_t first, std::int64_t count, DType dtype,
                    void* out) {
  if (dtype == DType::f16) {
    transpose_rows<std::uint16_t>(part, first, count, static_cast<std::uint16_t*>(out));
  } else if (dtype == DType::bf16) {
    transpose_rows_of(part, first, count, static_cast<BFloat16*>(out));
  } else {
    transpose_rows_of(part, first, count, static_cast<float*>(out));
  }
}

}  // namespace

std::int64_t StoredMatrix::filled_rows() const {
  std::int64_t filled = 0;
  for (const StoredPart& part : parts) filled += part.rows.count;
  return filled;
}

void copy_rows(const StoredPart& part, std::int64_t first, std::int64_t count, DType dtype,
               void* out) {
  if (part.matrix.format != nullptr) return decode_rows(part, first, count, dtype, out);
  if (part.row_step > 0) return transpose_rows(part, first, count, dtype, out);
  const Tensor& matrix = part.matrix.view;
  const std::size_t size = size_of(matrix.dtype());
  const std::int64_t columns = part.cols.count;
  const bool dense = columns == matrix[1] && dtype == matrix.dtype();
  const auto* data = static_cast<const std::byte*>(matrix.data());
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t begin = (part.rows.begin + first + row) * matrix[1] + part.cols.begin;
    const std::byte* from = data + static_cast<std::size_t>(begin) * size;
    if (dense) {
      std::memcpy(out, from, static_cast<std::size_t>(count * columns) * size);
      return;
    }
    const std::int64_t to = row * columns;
    if (dtype == matrix.dtype()) {
      std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(to) * size, from,
                  static_cast<std::size_t>(columns) * size);
    } else if (dtype == DType::bf16) {
      convert_row(from, matrix.dtype(), columns, static_cast<BFloat16*>(out) + to);
    } else {
      convert_row(from, matrix.dtype(), columns, static_cast<float*>(out) + to);
    }
  }
}

HostTensor in_host_memory(const StoredMatrix& matrix) {
  HostTensor host(matrix.dtype, {matrix.rows, matrix.columns});
  std::int64_t row = 0;
  for (const StoredPart& part : matrix.parts) {
    copy_rows(part, 0, part.rows.count, matrix.dtype, host->rows(row, part.rows.count).data());
    row += part.rows.count;
  }
  return host;
}

}  // namespace troupe
