#pragma once

#include <cstdint>
#include <span>

#include "models/quantize/scheme.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// How a group's scale is chosen.
enum class ScaleChoice : std::uint8_t {
  absmax,  ///< the largest magnitude is the largest code's
  mse,     ///< the largest magnitude may be clipped, if the squared error is less then
};

/// The numbers that a scheme's codes stand for: what rounding, GPTQ and AWQ choose from. A value;
/// const functions may be called from any thread.
///
/// Codes are a byte each: E4M3 bits; an int8; an int4 with 8 added, from 0 to 15; E2M1 bits.
class CodeGrid {
 public:
  /// Scales are stored as `scale_dtype`: f32, bf16 or f16; of mxfp4 as powers of two, of nvfp4 in
  /// E4M3.
  CodeGrid(QuantizationScheme scheme, DType scale_dtype, ScaleChoice choice = ScaleChoice::absmax)
      : scheme_(scheme), scale_dtype_(scale_dtype), choice_(choice) {}

  QuantizationScheme scheme() const { return scheme_; }
  /// f32, bf16 or f16; u8 for powers of two; f8_e4m3.
  DType scale_dtype() const {
    if (scheme_ == QuantizationScheme::nvfp4) return DType::f8_e4m3;
    return scheme_ == QuantizationScheme::mxfp4 ? DType::u8 : scale_dtype_;
  }

  /// The grid for a matrix whose largest magnitude is `absmax`. Of nvfp4, whose scales are numbers
  /// of E4M3 divided by one of the whole matrix, it has the divisor 448 * 6 / absmax, so that the
  /// group with that magnitude has the largest scale, 448 (NVIDIA 2025, Pretraining Large Language
  /// Models with NVFP4, section 2 and its appendix on quantization). Of other schemes it is the
  /// same for all matrices.
  CodeGrid with_range(float absmax) const;
  /// Stored scales are divided by it. It is 1 for all schemes but nvfp4.
  float tensor_divisor() const { return tensor_divisor_; }

  /// The scale of a group of weights, as it is stored, over the divisor; above 0 and finite.
  float scale_of(std::span<const float> weights) const;
  /// The code of the number nearest to `weight`.
  std::uint8_t code_of(float weight, float scale) const;
  /// The number that readers make of a code: rounded to bf16 unless scales are stored as f16.
  float number_of(std::uint8_t code, float scale) const;
  /// code_of and number_of at once.
  float nearest(float weight, float scale) const {
    return number_of(code_of(weight, scale), scale);
  }

 private:
  float scale_for(float absmax) const;
  float squared_error(std::span<const float> weights, float scale) const;

  QuantizationScheme scheme_;
  DType scale_dtype_;
  ScaleChoice choice_;
  float tensor_divisor_ = 1.0F;
};

/// The nearest f16, ties to even; beyond its range, the largest one.
std::uint16_t float_to_half(float number);

/// A number as a tensor of this dtype holds it.
float rounded_to(float number, DType dtype);

}  // namespace troupe
