// Activations, and norms other than RMSNorm, on single rows, for one instruction set (vec.hpp). A
// row's result depends on that row alone; widths need not be multiples of 16.
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

TROUPE_INLINE F16 sigmoid(F16 x) {
  const F16 one = broadcast(1.0F);
  return one / (one + exp(zero() - x));
}

/// x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / 2 (1 + tanh(u)).
TROUPE_INLINE F16 gelu_tanh_of(F16 x) {
  const F16 cubed = x * x * x;
  const F16 u = fma(cubed, broadcast(0.044715F), x) * broadcast(2.0F * 0.7978845608F);
  return max(broadcast(-40.0F), x) * sigmoid(u);
}

/// GPT-OSS's gate and up.
TROUPE_INLINE F16 clamped_swiglu(F16 gate, F16 up) {
  // A NaN stays one: it is the second operand.
  const F16 limit = broadcast(7.0F);
  const F16 g = max(broadcast(-51.0F), min(limit, gate));  // g * sigmoid(1.702 g) is -4e-36 there
  const F16 u = min(limit, max(zero() - limit, up));
  return g * sigmoid(g * broadcast(1.702F)) * (u + broadcast(1.0F));
}

inline void activate(const float* x, Activation activation, std::int64_t rows, std::int64_t inner,
                     float* out) {
  const bool gated = is_gated(activation);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * (gated ? 2 * inner : inner);
    for (std::int64_t i = 0; i < inner; i += 16) {
      const std::int64_t n = inner - i;
      const F16 first = load(row + i, n);
      F16 y = first;
      if (activation == Activation::clamped_gated) {
        y = clamped_swiglu(first, load(row + inner + i, n));
      } else if (activation == Activation::gelu_tanh_gated) {
        y = gelu_tanh_of(first) * load(row + inner + i, n);
      } else {
        y = gelu_tanh_of(first);
      }
      store(out + r * inner + i, y, n);
    }
  }
}

TROUPE_INLINE float sum_of(const float* x, std::int64_t width) {
  F16 sum = zero();
  for (std::int64_t i = 0; i < width; i += 16) sum = sum + load(x + i, width - i);
  return reduce_add(sum);
}

inline void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                       std::int64_t rows, std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    const F16 mean = broadcast(sum_of(row, width) / static_cast<float>(width));
    F16 squares = zero();
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t n = width - i;
      const F16 centred = keep_first(load(row + i, n) - mean, n, zero());
      squares = fma(centred, centred, squares);
    }
    const float variance = reduce_add(squares) / static_cast<float>(width);
    const F16 factor = broadcast(1.0F / __builtin_sqrtf(variance + eps));
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t n = width - i;
      F16 y = (load(row + i, n) - mean) * factor * load(weight + i, n);
      if (bias != nullptr) y = y + load(bias + i, n);
      store(out + r * width + i, y, n);
    }
  }
}

inline void scale(float* x, float factor, float soft_cap, std::int64_t count) {
  const F16 f = broadcast(factor), cap = broadcast(soft_cap), inverse = broadcast(1.0F / soft_cap);
  const F16 one = broadcast(1.0F), two = broadcast(2.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t n = count - i;
    F16 y = load(x + i, n) * f;
    if (soft_cap > 0.0F) y = cap * (two * sigmoid(two * (y * inverse)) - one);
    store(x + i, y, n);
  }
}

inline float dot(const float* x, const float* y, std::int64_t width) {
  F16 sum = zero();
  for (std::int64_t i = 0; i < width; i += 16) {
    sum = fma(load(x + i, width - i), load(y + i, width - i), sum);
  }
  return reduce_add(sum);
}

}  // namespace troupe::TROUPE_ISA
