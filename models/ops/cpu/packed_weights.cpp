#include "models/ops/cpu/packed_weights.hpp"

#include "models/ops/cpu/cpu_ops.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {
namespace {

static_assert(cpu_panel_rows == panel_columns);  // a weight's rows are a GEMM's columns

/// The index of column `column` within a panel's row.
std::int64_t place_in_panel(std::int64_t column, DType dtype) {
  if (dtype == DType::f32) return column;
  return column < 16 ? 2 * column : 2 * (column - 16) + 1;
}

void pack_matrix(const Tensor& weight, const Tensor& panels) {
  const std::int64_t n = weight[0], k = weight[1];
  for (std::int64_t row = 0; row < n; ++row) {
    const std::int64_t at = (row / panel_columns) * k * panel_columns +
                            place_in_panel(row % panel_columns, panels.dtype());
    if (panels.dtype() == DType::f32) {
      float* out = panels.as<float>() + at;
      for (std::int64_t i = 0; i < k; ++i) {
        out[i * panel_columns] = read_element(weight, row * k + i);
      }
    } else if (weight.dtype() == DType::bf16) {
      const BFloat16* in = weight.as<BFloat16>() + row * k;
      BFloat16* out = panels.as<BFloat16>() + at;
      for (std::int64_t i = 0; i < k; ++i) out[i * panel_columns] = in[i];
    } else {
      BFloat16* out = panels.as<BFloat16>() + at;
      for (std::int64_t i = 0; i < k; ++i) {
        out[i * panel_columns] = to_bfloat16(read_element(weight, row * k + i));
      }
    }
  }
}

}  // namespace

DType stored_dtype(DType given, DType model) { return given == DType::bf16 ? given : model; }

Result<PackedWeights> PackedWeights::pack(std::span<const Tensor> weights, int segments,
                                          DType model) {
  if (weights.empty()) return fail(ErrorCode::invalid_argument, "no weight matrix to prepare");
  const Tensor& first = weights[0];
  for (const Tensor& weight : weights) {
    const bool known = weight.dtype() == DType::f32 || weight.dtype() == DType::bf16 ||
                       weight.dtype() == DType::f16;
    if (!known || weight.shape().rank() != 2 || weight.shape() != first.shape() ||
        weight.dtype() != first.dtype() || weight.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "a weight matrix must be [n, k] of f32, bf16 or f16, like the others of its "
                  "group; found {} {}",
                  weight.shape().to_string(), to_string(weight.dtype()));
    }
  }
  if (segments < 1 || segments > 64 || !std::has_single_bit(static_cast<unsigned>(segments)) ||
      first[1] % segments != 0) {
    return fail(ErrorCode::invalid_argument,
                "{} segments of k = {}: segments must be a power of two up to 64 that divides k",
                segments, first[1]);
  }
  PackedWeights packed;
  packed.matrices_ = static_cast<std::int64_t>(weights.size());
  packed.n_ = first[0];
  packed.k_ = first[1];
  packed.segments_ = segments;
  packed.panels_ =
      HostTensor(stored_dtype(first.dtype(), model),
                 Shape{packed.matrices_, packed.panels_per_matrix(), packed.k_, panel_columns});
  for (std::int64_t i = 0; i < packed.matrices_; ++i) {
    pack_matrix(weights[i], packed.panels_->rows(i, 1));
  }
  return packed;
}

GemmJob PackedWeights::job(std::int64_t matrix) const {
  GemmJob job;
  job.panels = panels_->rows(matrix, 1).data();
  job.dtype = dtype();
  job.n = n_;
  job.k = k_;
  job.x_stride = k_;
  job.out_stride = n_;
  job.segments = segments_;
  job.panel_end = panels_per_matrix();
  return job;
}

}  // namespace troupe
