#include "models/ops/cuda/gemm/fp8_gemm.hpp"

#include <algorithm>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/fp8_rows.hpp"

namespace troupe {
namespace {

/// The rows that cuBLASLt computes fastest, of `rows` or more: gate and up of Qwen3-8B take 44 us
/// with 256 rows and 61 us with 192.
std::int64_t padded_rows(std::int64_t rows) {
  constexpr std::int64_t least = 129, most = 512, unit = 128;
  return rows < least || rows > most ? rows : (rows + unit - 1) / unit * unit;
}

}  // namespace

bool Fp8Gemm::fits(std::int64_t n, std::int64_t k) {
  return hopper_kernels_run() && fp8_fits(n, k);
}

std::optional<Tensor> Fp8Gemm::room_for_padded(std::int64_t rows, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t alignment = 256, element = 2;
  const std::int64_t all_rows = padded_rows(rows), codes = all_rows * std::max(k, n / 2);
  const std::int64_t begin = (codes + alignment - 1) / alignment * alignment;
  if (all_rows == rows || all_rows > memory_.scales->elements() ||
      begin + all_rows * n * element > memory_.codes->elements()) {
    return std::nullopt;
  }
  padded_ = Tensor(memory_.codes->as<std::uint8_t>() + begin, DType::bf16, {rows, n});
  return padded_;
}

std::optional<CodedRows> Fp8Gemm::room_for(std::int64_t rows, std::int64_t k) const {
  if (rows * k > memory_.codes->elements() || rows > memory_.scales->elements()) {
    return std::nullopt;
  }
  return room();
}

Result<void> Fp8Gemm::quantize(const Tensor& x, cudaStream_t stream) {
  if (is_coded(x)) return {};
  coded_ = x;
  return cuda_done(launch_quantize_rows(x.data(), x[0], x[1], room(), stream), "quantising rows");
}

Result<void> Fp8Gemm::multiply_codes(const Fp8Matrix& weight, const Tensor& x, const Tensor& out,
                                     bool gated, cudaStream_t stream) {
  const auto* const scales = weight.scales->as<float>();
  const auto* const x_scales = memory_.scales->as<float>();
  const std::int64_t n = weight.codes->shape()[0], k = weight.codes->shape()[1], rows = x[0];
  const DecodeGemm few{.weight = weight.codes->data(),
                       .x = memory_.codes->data(),
                       .out = out.data(),
                       .out_dtype = out.dtype(),
                       .rows = rows,
                       .n = n,
                       .k = k,
                       .gated = gated,
                       .weight_scales = scales,
                       .x_scales = x_scales};
  if (decode_gemm_fits(few)) {
    return cuda_done(launch_decode_gemm(few, best_tiling(few), stream), "a gemm of codes");
  }
  // What is computed for rows behind the last, of whatever codes are there, nobody reads.
  const bool is_padded = !padded_.empty() && out.data() == padded_.data();
  const std::int64_t computed = is_padded ? padded_rows(rows) : rows;
  return gemms_.multiply({n, k, computed, DType::u8, out.dtype()},
                         {.weight = weight.codes->data(),
                          .x = memory_.codes->data(),
                          .out = out.data(),
                          .weight_scales = scales,
                          .x_scales = x_scales},
                         stream);
}

Result<void> Fp8Gemm::multiply(const Fp8Matrix& weight, const Tensor& x, const Tensor& out,
                               cudaStream_t stream) {
  const std::int64_t at_once =
      std::min(memory_.codes->elements() / x[1], memory_.scales->elements());
  for (std::int64_t first = 0; first < x[0]; first += at_once) {
    const std::int64_t count = std::min(at_once, x[0] - first);
    TROUPE_CHECK(quantize(x.rows(first, count), stream));
    TROUPE_CHECK(
        multiply_codes(weight, x.rows(first, count), out.rows(first, count), false, stream));
  }
  return {};
}

Result<bool> Fp8Gemm::multiply_gated(const Fp8Matrix& weight, const Tensor& x, const Tensor& out,
                                     cudaStream_t stream) {
  const DecodeGemm gemm{.rows = x[0],
                        .n = weight.codes->shape()[0],
                        .k = weight.codes->shape()[1],
                        .gated = true,
                        .weight_scales = weight.scales->as<float>()};
  if (!decode_gemm_fits(gemm)) return false;
  TROUPE_CHECK(quantize(x, stream));
  TROUPE_CHECK(multiply_codes(weight, x, out, true, stream));
  return true;
}

}  // namespace troupe
