#include "models/ops/attention_limits.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// The largest head that fits the GPU kernels' registers and shared memory: DeepSeek's latent one.
constexpr std::int64_t max_gpu_head_dim = 576;
/// A lane has two pairs of elements of each half of a head.
constexpr std::int64_t max_gpu_coded_dim = 256;
/// A block has a thread for each element.
constexpr std::int64_t max_gpu_index_dim = 1024;

Result<void> check_dtype(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::bf16 || is_code(dtype)) return {};
  return fail(ErrorCode::unsupported,
              "attention reads a KV cache of f32, bf16, or codes of 8 or 4 bits, not {}",
              to_string(dtype));
}

/// Errors: what no device can do with a cache of 4 bits.
Result<void> check_4_bits(const AttentionShape& shape) {
  if (shape.latent > 0) {
    return fail(ErrorCode::unsupported,
                "kv_cache.dtype: int4: latent attention is not read from 4 bits; take int8, "
                "fp8_e4m3 or auto");
  }
  if (shape.head_dim % 2 == 0) return {};
  return fail(ErrorCode::unsupported,
              "kv_cache.dtype: int4: two numbers of a head share a byte, but head_dim is {}; take "
              "int8, fp8_e4m3 or auto",
              shape.head_dim);
}

/// Errors: what GPUs cannot do with a cache of codes.
Result<void> check_gpu_codes(const AttentionShape& shape, DType codes) {
  if (shape.latent > 0) {
    return fail(ErrorCode::unsupported,
                "kv_cache.dtype: {}: GPUs have no kernels yet that read latents of codes; leave it "
                "at auto",
                to_string(codes));
  }
  if (shape.head_dim > max_gpu_coded_dim || shape.head_dim % 4 != 0) {
    return fail(ErrorCode::unsupported,
                "kv_cache.dtype: {}: GPUs store keys and values as codes for a head_dim that is a "
                "multiple of 4 and at most {}, found {}; leave it at auto",
                to_string(codes), max_gpu_coded_dim, shape.head_dim);
  }
  return {};
}

Result<void> check_heads(const AttentionShape& shape) {
  const bool shares_heads = shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0;
  const bool has_latent = shape.latent > 0;
  if (shares_heads && shape.head_dim >= 2 && shape.latent < shape.head_dim &&
      (!has_latent || shape.kv_heads == 1)) {
    return {};
  }
  return fail(ErrorCode::unsupported,
              "attention wants heads / kv_heads to be a whole number, and a latent part to be "
              "shorter than the head and shared by all heads; found head_dim {} ({} latent), {} "
              "heads, {} KV heads",
              shape.head_dim, shape.latent, shape.heads, shape.kv_heads);
}

}  // namespace

Result<void> check_cpu_attention(const AttentionShape& shape, std::int64_t block_size,
                                 DType dtype) {
  if (block_size < 16 || block_size % 16 != 0) {
    return fail(ErrorCode::unsupported,
                "the CPU's attention wants a block_size that is a multiple of 16, found {}",
                block_size);
  }
  TROUPE_CHECK(check_dtype(dtype));
  if (dtype == DType::i4x2) TROUPE_CHECK(check_4_bits(shape));
  return check_heads(shape);
}

Result<void> check_gpu_attention(const AttentionShape& shape, DType dtype) {
  if (shape.head_dim > max_gpu_head_dim || shape.head_dim % 2 != 0) {
    return fail(ErrorCode::unsupported,
                "the GPU's attention wants a head_dim that is even and at most {}, with the latent "
                "part where there is one; found {} ({} latent)",
                max_gpu_head_dim, shape.head_dim, shape.latent);
  }
  if (shape.index.dim > max_gpu_index_dim) {
    return fail(ErrorCode::unsupported,
                "the GPU's sparse attention wants an index_head_dim of at most {}, found {}",
                max_gpu_index_dim, shape.index.dim);
  }
  TROUPE_CHECK(check_dtype(dtype));
  if (is_code(dtype)) TROUPE_CHECK(check_gpu_codes(shape, dtype));
  return check_heads(shape);
}

std::optional<std::int64_t> max_gpu_pass_tokens(const AttentionShape& shape, DType dtype,
                                                std::int64_t sequences) {
  if (shape.latent != 512 || shape.head_dim != 576 || dtype != DType::bf16) return std::nullopt;
  // Under sparse attention each row is a sequence of its own.
  if (shape.index.top_k > 0) {
    return max_latent_tiles / ((shape.heads + latent_tile_rows - 1) / latent_tile_rows);
  }
  // Each sequence may leave a tile partly empty, unless its rows fill them.
  const std::int64_t partial = shape.heads % latent_tile_rows == 0 ? 0 : sequences;
  return std::max<std::int64_t>(1, (max_latent_tiles - partial) * latent_tile_rows / shape.heads);
}

}  // namespace troupe
