#include "models/ops/fp8_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "parallel/device/convert.hpp"

namespace troupe {
namespace {

constexpr std::uint8_t largest_code = 0x7E, nan_code = 0x7F;
/// Smaller numbers have codes without a leading one, multiples of 2^-9.
constexpr float smallest_normal = 0x1p-6F;

}  // namespace

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0F;
  bool finite = true;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
    finite = finite && std::isfinite(value);
  }
  return finite ? largest : std::numeric_limits<float>::quiet_NaN();
}

std::uint8_t float_to_e4m3(float value) {
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | nan_code;
  if (magnitude >= e4m3_max) return sign | largest_code;
  if (magnitude < smallest_normal) {
    return sign | static_cast<std::uint8_t>(std::nearbyint(magnitude * 0x1p9F));
  }
  // Keeps 3 of 23 bits of fraction; a carry goes to the exponent.
  auto bits = std::bit_cast<std::uint32_t>(magnitude);
  bits += 0x7FFFFU + ((bits >> 20) & 1U);
  const std::uint32_t code = (bits >> 20) - ((127U - 7U) << 3);
  return sign | static_cast<std::uint8_t>(std::min<std::uint32_t>(code, largest_code));
}

float fp8_row_scale(float largest) {
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  return largest > 0.0F ? std::max(largest / e4m3_max, min_fp8_scale) : 1.0F;
}

std::vector<float> fp8_scales(const StoredPart& part, DType dtype) {
  StoredPart whole = part;
  if (part.row_step == 0) whole.cols = {0, part.matrix.view[1]};  // others are whole
  const HostTensor stored(dtype, {1, whole.cols.count}), row(DType::f32, {1, whole.cols.count});
  std::vector<float> scales;
  for (std::int64_t r = 0; r < part.rows.count; ++r) {
    copy_rows(whole, r, 1, dtype, stored->data());
    convert(stored, row);
    scales.push_back(fp8_row_scale(largest_magnitude(row->span<float>())));
  }
  return scales;
}

}  // namespace troupe
