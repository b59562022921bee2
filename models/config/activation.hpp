#pragma once

#include <cstdint>

namespace troupe {

/// The function between an MLP's first and second matrix. Those of a gated MLP multiply a function
/// of the gate by the other half of the first matrix's output (Shazeer 2020, GLU variants).
enum class Activation : std::uint8_t {
  silu_gated,       ///< silu(gate) * up
  gelu_tanh_gated,  ///< gelu(gate) * up, with the approximation by tanh (Hendrycks & Gimpel 2016)
  clamped_gated,    ///< g * sigmoid(1.702 g) * (u + 1), with g <= 7 and |u| <= 7 (GPT-OSS)
  gelu_tanh,        ///< gelu, with the approximation by tanh
  gelu,             ///< x * the normal distribution's function of x
};

constexpr bool is_gated(Activation activation) {
  return activation != Activation::gelu_tanh && activation != Activation::gelu;
}

}  // namespace troupe
