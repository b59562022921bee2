#include "models/ops/cuda/coded_cuda_linear.hpp"

#include <algorithm>

#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/coded_decode_gemm.hpp"
#include "models/ops/cuda/gemm/decode_codes.hpp"

namespace troupe {
namespace {

constexpr std::int64_t part_unit = 128;  // rows: a multiple of a GEMM's tile
constexpr std::int64_t min_part_rows = 4096;
constexpr std::int64_t cached_elements = 16 << 20;
/// With more rows it is faster to make the matrix bf16 first.
constexpr std::int64_t max_coded_rows = 384;

/// Enqueues the GEMM on the kernel for codes that suits it; false if none does.
Result<bool> launch_on_codes(const CodedGemm& gemm, cudaStream_t stream) {
  if (coded_gemm_fits(gemm)) {
    TROUPE_CHECK(cuda_done(launch_coded_gemm(gemm, stream), "a gemm of codes"));
    return true;
  }
  if (gemm.rows > max_coded_rows || !coded_decode_gemm_fits(gemm)) return false;
  TROUPE_CHECK(cuda_done(launch_coded_decode_gemm(gemm, stream), "a gemm of codes"));
  return true;
}

/// How many rows of a matrix become bf16 at once, given room for so many elements: equal parts, as
/// small as the second-level cache, but of enough rows for GEMMs to fill the device.
std::int64_t rows_at_once(const CodedPanels& layout, std::int64_t room) {
  const std::int64_t wanted = std::max(cached_elements / layout.columns, min_part_rows);
  const std::int64_t fitting = std::min(wanted, room / layout.columns);
  const std::int64_t most = std::max(part_unit, fitting / part_unit * part_unit);
  const std::int64_t parts = (layout.rows + most - 1) / most;
  const std::int64_t each = (layout.rows + parts - 1) / parts;
  return (each + part_unit - 1) / part_unit * part_unit;
}

}  // namespace

CodedWeight CodedCudaLinear::weight() const {
  return {
      .layout = weight_.layout,
      .panels = weight_.panels->data(),
      .row_scales = weight_.layout.has_row_scales() ? weight_.row_scales->as<float>() : nullptr};
}

CodedGemm CodedCudaLinear::descriptor(const Tensor& x, const Tensor& out, bool gated) const {
  return {.weight = weight(),
          .x = x.data(),
          .out = out.data(),
          .out_dtype = out.dtype(),
          .rows = x[0],
          .gated = gated};
}

Result<void> CodedCudaLinear::multiply(CudaGemms& gemms, const Tensor& x, const Tensor& out,
                                       cudaStream_t stream) const {
  const CodedGemm gemm = descriptor(x, out, false);
  TROUPE_TRY(const bool is_done, launch_on_codes(gemm, stream));
  if (is_done) return {};
  const CodedPanels& layout = weight_.layout;
  const std::int64_t at_once = rows_at_once(layout, (*decoded_)->elements());
  for (std::int64_t first = 0; first < layout.rows; first += at_once) {
    const std::int64_t count = std::min(at_once, layout.rows - first);
    TROUPE_CHECK(
        cuda_done(launch_decode_rows(gemm.weight, first, count, (*decoded_)->data(), stream),
                  "decoding a matrix"));
    auto* const to = static_cast<std::byte*>(out.data()) +
                     static_cast<std::size_t>(first) * size_of(out.dtype());
    TROUPE_CHECK(gemms.dense->multiply(
        {count, layout.columns, x[0], x.dtype(), out.dtype()},
        {.weight = (*decoded_)->data(), .x = x.data(), .out = to, .out_stride = layout.rows},
        stream));
  }
  return {};
}

Result<bool> CodedCudaLinear::multiply_gated(CudaGemms& /*gemms*/, const Tensor& x,
                                             const Tensor& out, cudaStream_t stream) const {
  return launch_on_codes(descriptor(x, out, true), stream);
}

}  // namespace troupe
