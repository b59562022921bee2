#include "models/ops/cpu/packed_weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <iterator>
#include <new>

#include <fmt/format.h>

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

Result<void> check_segments(std::int64_t k, int segments) {
  if (segments >= 1 && segments <= 64 && std::has_single_bit(static_cast<unsigned>(segments)) &&
      k % segments == 0) {
    return {};
  }
  return fail(ErrorCode::invalid_argument,
              "{} segments of k = {}: segments must be a power of two up to 64 that divides k",
              segments, k);
}

/// One panel of codes and what belongs to it.
struct CodePanel {
  std::uint8_t* codes;
  void* scales;           // [runs][32] f32 or bf16
  BFloat16* zero_points;  // likewise
};

/// Kernels take E4M3 codes as f16, which are 2^-8 of their numbers.
float kernel_scale(CodeKind kind, float scale) {
  return kind == CodeKind::e4m3 ? scale * 256.0F : scale;
}

/// Puts a row of the matrix into column `column` of a panel.
void pack_row(const CodedRow& row, const CodedForm& form, std::span<const CodeRun> runs,
              std::int64_t column, const CodePanel& panel) {
  std::int64_t at = 0;  // columns of codes before the run, padding included
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const CodeRun& run = runs[r];
    const std::uint8_t* const codes = row.codes.data() + run.begin;
    for (std::int64_t i = 0; i < run.count; ++i) {
      if (is_packed(form.kind)) {
        const std::int64_t word = (at + i) / 8 * panel_columns + column;
        const auto bits = static_cast<unsigned>(codes[i]) << (i % 2 * 4);
        panel.codes[word * 4 + i % 8 / 2] |= static_cast<std::uint8_t>(bits);
      } else if (form.rounds_rows) {
        const std::int64_t four = (at + i) / 4 * panel_columns + column;
        panel.codes[four * 4 + i % 4] = codes[i] ^ 0x80U;
      } else {
        panel.codes[(at + i) * panel_columns + column] = codes[i];
      }
    }
    at += padded_codes(form, run.count);
    const CodeScale& scale = row.scales[static_cast<std::size_t>(form.group_of(run.begin))];
    const std::int64_t place = static_cast<std::int64_t>(r) * panel_columns + column;
    const float of_kernel = kernel_scale(form.kind, scale.scale * row.row_scale);
    if (form.scale_dtype == DType::bf16) {
      static_cast<BFloat16*>(panel.scales)[place] = to_bfloat16(of_kernel);
    } else {
      static_cast<float*>(panel.scales)[place] = of_kernel;
    }
    if (panel.zero_points != nullptr) panel.zero_points[place] = to_bfloat16(scale.zero);
  }
}

/// Turns a panel whose codes are as with CodePanels::rounds_rows into one as without. Runs become
/// shorter by their padding, so that nothing is written before it is read.
void widen_panel(std::uint8_t* panel, std::span<const CodeRun> runs) {
  constexpr std::int64_t four_columns = 4 * panel_columns;
  const std::uint8_t* from = panel;
  for (const CodeRun& run : runs) {
    for (std::int64_t done = 0; done < run.count; done += 4, from += four_columns) {
      std::array<std::uint8_t, four_columns> block;  // [32][4]
      std::copy_n(from, four_columns, block.begin());
      for (std::int64_t i = 0; i < std::min<std::int64_t>(4, run.count - done); ++i) {
        for (std::int64_t column = 0; column < panel_columns; ++column) {
          *panel++ = block[static_cast<std::size_t>(4 * column + i)] ^ 0x80U;
        }
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
  TROUPE_CHECK(check_segments(first[1], segments));
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

Result<PackedWeights> PackedWeights::pack_codes(std::span<const StoredMatrix> weights,
                                                const CodedForm& form, int segments,
                                                ThreadPool& pool) {
  const StoredMatrix& first = weights.front();
  TROUPE_CHECK(check_segments(first.columns, segments));
  PackedWeights packed;
  packed.form_ = form;
  packed.matrices_ = std::ssize(weights);
  packed.n_ = first.rows;
  packed.k_ = first.columns;
  packed.segments_ = segments;
  packed.runs_ = code_runs(form, first.columns, segments);
  const std::int64_t panels = packed.panels_per_matrix(), all = packed.matrices_ * panels;
  const Shape of_runs{packed.matrices_, panels, std::ssize(packed.runs_), panel_columns};
  packed.panels_ = HostTensor(
      DType::u8, {packed.matrices_, panels, code_bytes(form, packed.runs_, panel_columns)});
  packed.scales_ = HostTensor(form.scale_dtype, of_runs);
  if (form.may_have_zero_points) packed.zero_points_ = HostTensor(DType::bf16, of_runs);
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> has_zero_points{false}, out_of_memory{false};
  pool.run([&](int) {
    try {
      CodedRow row;
      for (std::int64_t i = next++; i < all; i = next++) {
        const std::int64_t matrix = i / panels, panel = i % panels;
        const auto at = [&](const HostTensor& tensor) -> void* {
          if (tensor->empty()) return nullptr;
          return static_cast<std::byte*>(tensor->data()) +
                 static_cast<std::int64_t>(tensor->bytes()) / all * i;
        };
        const CodePanel target{static_cast<std::uint8_t*>(at(packed.panels_)), at(packed.scales_),
                               static_cast<BFloat16*>(at(packed.zero_points_))};
        for (std::int64_t column = 0; column < panel_columns; ++column) {
          read_coded_row(weights[static_cast<std::size_t>(matrix)], form,
                         panel * panel_columns + column, row);
          pack_row(row, form, packed.runs_, column, target);
          const auto is_set = [](const CodeScale& scale) { return scale.zero != 0.0F; };
          if (std::ranges::any_of(row.scales, is_set)) has_zero_points = true;
        }
      }
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
  if (!has_zero_points) packed.zero_points_ = HostTensor();
  return packed;
}

void PackedWeights::widen(ThreadPool& pool) {
  if (!form_.rounds_rows) return;
  const std::int64_t panels = matrices_ * panels_per_matrix();
  const std::int64_t panel_bytes = panels_->shape()[2];
  pool.run([&](int member) {
    const Range range = split_evenly(panels, member, pool.size());
    for (std::int64_t panel = range.begin; panel < range.end; ++panel) {
      widen_panel(panels_->as<std::uint8_t>() + panel * panel_bytes, runs_);
    }
  });
  form_.rounds_rows = false;
}

std::string PackedWeights::kernel() const {
  if (runs_.empty()) return std::string(to_string(dtype()));
  return fmt::format(
      "{} codes{}{}{}", name_of(form_.kind, form_.has_row_scales),
      form_.group_columns > 0 ? fmt::format(", groups of {}", form_.group_columns) : "",
      zero_points_->empty() ? "" : ", zero points",
      form_.rounds_rows ? ", activations as int8 (W8A8)" : ", activations as f32");
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
  if (runs_.empty()) return job;
  job.codes = {
      .kind = form_.kind,
      .runs = runs_.data(),
      .run_count = std::ssize(runs_),
      .panel_bytes = panels_->shape()[2],
      .scale_dtype = form_.scale_dtype,
      .scales = scales_->rows(matrix, 1).data(),
      .zero_points = zero_points_->empty() ? nullptr : zero_points_->rows(matrix, 1).data(),
      .rounds_rows = form_.rounds_rows};
  return job;
}

}  // namespace troupe
