#include "models/ops/cuda/gemm/w8a8_gemm.hpp"

#include <algorithm>
#include <cstddef>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/fp8_rows.hpp"

namespace troupe {
namespace {

/// Rows of a tile of cuBLASLt, which is slower with a part of one than with all: gate and up of
/// Qwen3-8B take 61 us with 192 rows and 44 with 256, 160 with 784 and 126 with 896.
constexpr std::int64_t tile_rows = 128;

}  // namespace

bool W8a8Gemm::fits(std::int64_t n, std::int64_t k) {
  return hopper_kernels_run() && fp8_fits(n, k);
}

std::int64_t W8a8Gemm::padded_rows(const Tensor& out, std::int64_t k) const {
  const std::int64_t rows = out[0], whole = (rows + tile_rows - 1) / tile_rows * tile_rows;
  const auto* const begin = static_cast<const std::byte*>(out.data());
  const auto more = static_cast<std::size_t>((whole - rows) * out[1]) * size_of(out.dtype());
  const bool has_codes =
      whole * k <= memory_.codes->elements() && whole <= memory_.scales->elements();
  return has_codes && more <= outputs_.bytes_behind(begin, begin + out.bytes()) ? whole : rows;
}

std::optional<CodedRows> W8a8Gemm::room_for(std::int64_t rows, std::int64_t k) const {
  if (rows * k > memory_.codes->elements() || rows > memory_.scales->elements()) {
    return std::nullopt;
  }
  return room();
}

Result<void> W8a8Gemm::quantize(const Tensor& x, cudaStream_t stream) {
  if (is_coded(x)) return {};
  coded_ = x;
  return cuda_done(launch_quantize_rows(x.data(), x[0], x[1], room(), stream), "quantising rows");
}

Result<void> W8a8Gemm::multiply_in_turns(DecodeGemm gemm, const Tensor& out, cudaStream_t stream) {
  const auto* const codes = memory_.codes->as<std::uint8_t>();
  const auto* const scales = memory_.scales->as<float>();
  const std::int64_t rows = gemm.rows;
  for (std::int64_t first = 0; first < rows; first += max_decode_rows) {
    gemm.rows = std::min(max_decode_rows, rows - first);
    gemm.x = codes + first * gemm.k;
    gemm.x_scales = scales + first;
    gemm.out = out.rows(first, gemm.rows).data();
    TROUPE_CHECK(cuda_done(launch_decode_gemm(gemm, best_tiling(gemm), stream), "a gemm of codes"));
  }
  return {};
}

Result<void> W8a8Gemm::multiply_rows(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                                     bool gated, cudaStream_t stream) {
  const auto* const scales = weight.scales->as<float>();
  const auto* const x_scales = memory_.scales->as<float>();
  const std::int64_t n = weight.codes->shape()[0], k = weight.codes->shape()[1], rows = x[0];
  DecodeGemm few{.weight = weight.codes->data(),
                 .x = x.data(),
                 .out = out.data(),
                 .out_dtype = out.dtype(),
                 .rows = rows,
                 .n = n,
                 .k = k,
                 .gated = gated,
                 .weight_scales = scales,
                 .kind = kind_};
  if (peak_ == nullptr && !is_coded(x) && decode_gemm_makes_codes(few)) {
    return cuda_done(launch_decode_gemm(few, best_tiling(few), stream), "a gemm of codes");
  }
  TROUPE_CHECK(quantize(x, stream));
  few.x = memory_.codes->data();
  few.x_scales = x_scales;
  if (decode_gemm_suits(few)) {
    return cuda_done(launch_decode_gemm(few, best_tiling(few), stream), "a gemm of codes");
  }
  const ScaledGemm many{.weight = weight.codes->data(),
                        .x = memory_.codes->data(),
                        .out = out.data(),
                        .rows = rows,
                        .n = n,
                        .k = k,
                        .weight_scales = scales,
                        .x_scales = x_scales,
                        .kind = kind_};
  if (const auto tiling = best_tiling(many); tiling && out.dtype() == DType::bf16) {
    return cuda_done(launch_scaled_gemm(many, *tiling, stream), "a gemm of codes");
  }
  if (kind_ == CodeKind::int8) return multiply_in_turns(few, out, stream);
  // Rows behind the last have whatever codes are there, and nobody reads them.
  return gemms_.multiply({n, k, padded_rows(out, k), DType::u8, out.dtype()},
                         {.weight = weight.codes->data(),
                          .x = memory_.codes->data(),
                          .out = out.data(),
                          .weight_scales = scales,
                          .x_scales = x_scales},
                         stream);
}

Result<void> W8a8Gemm::multiply(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                                cudaStream_t stream) {
  const std::int64_t at_once =
      std::min(memory_.codes->elements() / x[1], memory_.scales->elements());
  for (std::int64_t first = 0; first < x[0]; first += at_once) {
    const std::int64_t count = std::min(at_once, x[0] - first);
    TROUPE_CHECK(
        multiply_rows(weight, x.rows(first, count), out.rows(first, count), false, stream));
  }
  return {};
}

Result<bool> W8a8Gemm::multiply_gated(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                                      cudaStream_t stream) {
  const DecodeGemm gemm{.rows = x[0],
                        .n = weight.codes->shape()[0],
                        .k = weight.codes->shape()[1],
                        .gated = true,
                        .weight_scales = weight.scales->as<float>(),
                        .kind = kind_};
  if (!decode_gemm_suits(gemm)) return false;
  TROUPE_CHECK(multiply_rows(weight, x, out, true, stream));
  return true;
}

}  // namespace troupe
