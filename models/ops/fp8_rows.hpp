#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/ops/stored_matrix.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// The largest number that an E4M3 code can be: a row's largest magnitude becomes it.
inline constexpr float e4m3_max = 448.0F;
/// The smallest scale, so that reciprocals are finite.
inline constexpr float min_fp8_scale = 1e-30F;

/// The 8-bit code (e4m3_to_float) nearest to a number, ties to even; beyond e4m3_max the code of
/// that. NaN stays NaN.
std::uint8_t float_to_e4m3(float value);

/// NaN if one of the values is not finite.
float largest_magnitude(std::span<const float> values);

/// The scale of a row whose largest magnitude is `largest`: its elements are codes times it.
float fp8_row_scale(float largest);

/// True if a device may hold matrices [n, k] as codes: cuBLASLt takes rows and columns in multiples
/// of 16.
constexpr bool fp8_fits(std::int64_t n, std::int64_t k) { return n % 16 == 0 && k % 16 == 0; }

/// The scales of a part's rows: of whole rows of the stored matrix, though the part may have some
/// of their columns, so that codes are the same however many ranks share a row. The matrix has no
/// format; its numbers are taken as `dtype` (f32, or bf16 to which they are rounded). Throws
/// std::bad_alloc.
std::vector<float> fp8_scales(const StoredPart& part, DType dtype);

}  // namespace troupe
