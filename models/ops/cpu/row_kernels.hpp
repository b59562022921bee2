// Operations on single rows, for one instruction set (vec.hpp). A row's result depends on that row
// alone; widths need not be multiples of 16.
#pragma once

#include "models/ops/cpu/activation_kernels.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/kv_store.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

/// 1 / sqrt(mean(x^2) + eps): two chains of FMAs over alternating vectors, then reduce_add.
TROUPE_INLINE float inverse_rms(const float* x, std::int64_t width, float eps) {
  F16 even = zero(), odd = zero();
  std::int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    const F16 a = load(x + i), b = load(x + i + 16);
    even = fma(a, a, even);
    odd = fma(b, b, odd);
  }
  for (; i < width; i += 16) {
    const F16 a = load(x + i, width - i);
    even = fma(a, a, even);
  }
  return 1.0F / __builtin_sqrtf(reduce_add(even + odd) / static_cast<float>(width) + eps);
}

inline void scale_row(const float* x, float factor, const float* weight, std::int64_t width,
                      float* out) {
  const F16 f = broadcast(factor);
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, load(x + i) * f * load(weight + i));
  if (i < width) {
    const std::int64_t n = width - i;
    store(out + i, load(x + i, n) * f * load(weight + i, n), n);
  }
}

inline void rms_norm(const float* x, const float* weight, float eps, std::int64_t rows,
                     std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    scale_row(row, inverse_rms(row, width, eps), weight, width, out + r * width);
  }
}

inline void add_rms_norm(float* residual, const float* x, const float* weight, float eps,
                         std::int64_t rows, std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = residual + r * width;
    const float* add = x + r * width;
    std::int64_t i = 0;
    for (; i + 16 <= width; i += 16) store(row + i, load(row + i) + load(add + i));
    if (i < width) store(row + i, load(row + i, width - i) + load(add + i, width - i), width - i);
    scale_row(row, inverse_rms(row, width, eps), weight, width, out + r * width);
  }
}

inline void add_bias(float* x, const float* bias, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = x + r * width;
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t n = width - i;
      store(row + i, load(row + i, n) + load(bias + i, n), n);
    }
  }
}

inline void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t inner, float* out) {
  const F16 one = broadcast(1.0F);
  const F16 lowest = broadcast(-88.0F);  // silu there is -5e-37; below it exp is clamped
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* gate = gate_up + 2 * r * inner;
    const float* up = gate + inner;
    float* row = out + r * inner;
    for (std::int64_t i = 0; i < inner; i += 16) {
      const std::int64_t n = inner - i;
      const F16 g = n >= 16 ? load(gate + i) : load(gate + i, n);
      const F16 u = n >= 16 ? load(up + i) : load(up + i, n);
      const F16 y = max(lowest, g) / (one + exp(zero() - g)) * u;
      if (n >= 16) {
        store(row + i, y);
      } else {
        store(row + i, y, n);
      }
    }
  }
}

/// Computes exp(logits - max) and returns the sum; lanes of a last partial vector count as zero.
inline float softmax_terms(const float* logits, std::int64_t experts, float* terms) {
  const F16 lowest = broadcast(-__builtin_inff());
  F16 largest = lowest;
  for (std::int64_t i = 0; i < experts; i += 16) {
    largest = max(largest, keep_first(load(logits + i, experts - i), experts - i, lowest));
  }
  const F16 top = broadcast(reduce_max(largest));
  F16 sum = zero();
  for (std::int64_t i = 0; i < experts; i += 16) {
    const F16 x = load(logits + i, experts - i);
    const F16 e = keep_first(exp(x - top), experts - i, zero());
    store(terms + i, e, experts - i);
    sum = sum + e;
  }
  return reduce_add(sum);
}

inline void sigmoids(const float* logits, std::int64_t experts, float* scores) {
  const F16 one = broadcast(1.0F);
  for (std::int64_t i = 0; i < experts; i += 16) {
    const F16 x = load(logits + i, experts - i);
    store(scores + i, one / (one + exp(zero() - x)), experts - i);
  }
}

// Below every choice value, all of which are above twice the lowest float.
inline constexpr float taken = -__builtin_inff();
inline constexpr float lowest_choice = -1.0e38F;

/// Returns the index of the largest value (ties: the lower), and sets that value to `taken`.
inline std::int64_t take_largest(float* values, std::int64_t count) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < count; ++i) {
    if (values[best] == taken || values[i] > values[best]) best = i;
  }
  values[best] = taken;
  return best;
}

/// Removes the experts of all but the best groups from the choice.
inline void keep_best_groups(const RouterOptions& options, std::int64_t experts, float* choice,
                             float* sums) {
  const std::int64_t size = experts / options.groups;
  for (std::int64_t g = 0; g < options.groups; ++g) {
    float first = taken, second = lowest_choice;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first > second ? first : second;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    sums[g] = options.best_score_groups ? first : first + second;
  }
  for (std::int64_t i = 0; i < options.top_groups; ++i) take_largest(sums, options.groups);
  for (std::int64_t e = 0; e < experts; ++e) {
    if (sums[e / size] != taken) choice[e] = taken;
  }
}

inline void route(const float* logits, const float* bias, std::int64_t tokens, std::int64_t experts,
                  const RouterOptions& options, std::int32_t* ids, float* weights, float* scratch) {
  const std::int64_t top_k = options.top_k;
  float* scores = scratch;
  float* choice = scratch + experts;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (options.sigmoid) {
      sigmoids(logits + t * experts, experts, scores);
    } else {
      const float total = softmax_terms(logits + t * experts, experts, scores);
      for (std::int64_t e = 0; e < experts; ++e) scores[e] /= total;
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      const float value = bias == nullptr ? scores[e] : scores[e] + bias[e];
      choice[e] = value > lowest_choice ? value : lowest_choice;  // for a NaN, too
    }
    if (options.groups > 1) keep_best_groups(options, experts, choice, scratch + 2 * experts);
    float chosen = 0.0F;
    for (std::int64_t c = 0; c < top_k; ++c) {
      const std::int64_t best = take_largest(choice, experts);
      ids[t * top_k + c] = static_cast<std::int32_t>(best);
      weights[t * top_k + c] = scores[best];
      chosen += scores[best];
    }
    // All sigmoids may be zero; in any other sum the addend is lost.
    const float divisor = options.normalize ? chosen + 1e-20F : 1.0F;
    for (std::int64_t c = 0; c < top_k; ++c) {
      weights[t * top_k + c] = weights[t * top_k + c] / divisor * options.scale;
    }
  }
}

inline void combine(const float* x, const float* weights, std::int64_t tokens, std::int64_t top_k,
                    std::int64_t width, float* out) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* rows = x + t * top_k * width;
    const float* w = weights + t * top_k;
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t n = width - i;
      F16 sum = load(rows + i, n) * broadcast(w[0]);
      for (std::int64_t c = 1; c < top_k; ++c) {
        sum = fma(load(rows + c * width + i, n), broadcast(w[c]), sum);
      }
      store(out + t * width + i, sum, n);
    }
  }
}

/// Adds +0.0, which turns -0.0 into +0.0.
inline void widen_row(const void* row, DType dtype, std::int64_t width, float* out) {
  if (dtype == DType::f32) {
    const auto* x = static_cast<const float*>(row);
    for (std::int64_t i = 0; i < width; i += 16) {
      store(out + i, load(x + i, width - i) + zero(), width - i);
    }
    return;
  }
  const auto* x = static_cast<const std::uint16_t*>(row);
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, load(x + i) + zero());
  for (; i < width; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x[i]) << 16;
    __builtin_memcpy(out + i, &bits, sizeof bits);
    out[i] += 0.0F;
  }
}

/// Normalises (weight may be null) and rotates one head from `x` into `out`, which may be x.
TROUPE_INLINE void norm_and_rotate(const float* x, const float* weight, float eps,
                                   const float* rope, std::int64_t head_dim, float* out) {
  if (weight != nullptr) {
    scale_row(x, inverse_rms(x, head_dim, eps), weight, head_dim, out);
    x = out;
  }
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; i += 16) {
    const std::int64_t n = half - i;
    const F16 a = load(x + i, n), b = load(x + half + i, n);
    const F16 cosine = load(rope + i, n), sine = load(rope + half + i, n);
    store(out + i, fnma(b, sine, a * cosine), n);
    store(out + half + i, fma(a, sine, b * cosine), n);
  }
}

template <class Key, class Value>
void norm_rope_store(const NormRopeStoreJob& job) {
  const std::int64_t heads = job.shape.heads, kv_heads = job.shape.kv_heads;
  const std::int64_t dim = job.shape.head_dim;
  float* head = job.scratch;
  for (std::int64_t t = job.begin; t < job.end; ++t) {
    const float* qkv = job.qkv + t * (heads + 2 * kv_heads) * dim;
    const float* rope = job.rope + job.positions[t] * dim;
    for (std::int64_t h = 0; h < heads; ++h) {
      norm_and_rotate(qkv + h * dim, job.q_norm, job.eps, rope, dim,
                      job.q_out + (t * heads + h) * dim);
    }
    const std::int64_t block = job.kv_slots[t] / job.block_size;
    const std::int64_t offset = job.kv_slots[t] % job.block_size;
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      norm_and_rotate(qkv + (heads + h) * dim, job.k_norm, job.eps, rope, dim, head);
      const float* value = qkv + (heads + kv_heads + h) * dim;
      const std::int64_t page = block * kv_heads + h;
      Key* const keys =
          static_cast<Key*>(job.keys) + page * job.layout.page_elements(job.block_size);
      Value* const values =
          static_cast<Value*>(job.values) + page * job.value_layout.page_elements(job.block_size);
      store_key_part(job.layout, keys, offset, job.block_size, 0, dim, head, job.shape.key_scale);
      store_value(job.value_layout, values, offset, job.block_size, value, job.shape.value_scale);
    }
  }
}

inline void norm_rope_store(const NormRopeStoreJob& job) {
  with_stored(job.layout.stored, job.value_layout.stored,
              [&](auto key, auto value) { norm_rope_store<decltype(key), decltype(value)>(job); });
}

template <class Stored>
void latent_rope_store(const LatentRopeStoreJob& job) {
  const std::int64_t heads = job.shape.heads, dim = job.shape.head_dim;
  const std::int64_t latent = job.shape.latent, rotated = dim - latent;
  float* key = job.scratch;
  for (std::int64_t t = job.begin; t < job.end; ++t) {
    const float* rope = job.rope + job.positions[t] * rotated;
    for (std::int64_t h = 0; h < heads; ++h) {
      float* q = job.q_out + (t * heads + h) * dim;
      norm_and_rotate(job.rotated_q + t * job.q_stride + h * rotated, nullptr, 0.0F, rope, rotated,
                      q + latent);
    }
    const float* kv = job.kv + t * job.kv_stride;
    scale_row(kv, inverse_rms(kv, latent, job.eps), job.norm, latent, key);
    norm_and_rotate(kv + latent, nullptr, 0.0F, rope, rotated, key + latent);
    const std::int64_t block = job.kv_slots[t] / job.block_size;
    Stored* page =
        static_cast<Stored*>(job.keys) + block * job.layout.row_elements * job.block_size;
    const std::int64_t offset = job.kv_slots[t] % job.block_size, first = job.layout.first_part;
    store_key_part(job.layout, page, offset, job.block_size, 0, first, key, 0.0F);
    if (first == dim) continue;
    store_key_part(job.layout, page, offset, job.block_size, first, dim, key + first, 0.0F);
  }
}

inline void latent_rope_store(const LatentRopeStoreJob& job) {
  with_stored(job.layout.stored, [&](auto stored) { latent_rope_store<decltype(stored)>(job); });
}

extern constexpr RowKernels row_kernels{
    rms_norm,   add_rms_norm, silu_mul,        add_bias,          route,
    combine,    widen_row,    norm_rope_store, latent_rope_store, activate,
    layer_norm, scale,        load_key,        store_key,         dot,
    scale_row};

}  // namespace troupe::TROUPE_ISA
