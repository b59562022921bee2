#include "models/ops/gpu_attention.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace troupe {
namespace {

bool is_plain(const AttentionShape& shape) {
  return shape.window == 0 && shape.soft_cap == 0.0F && shape.sinks.empty();
}

}  // namespace

std::string_view to_string(GpuAttentionKernel kernel) {
  switch (kernel) {
    case GpuAttentionKernel::decode:
      return "the decode kernel";
    case GpuAttentionKernel::latent_decode:
      return "the latent decode kernel";
    case GpuAttentionKernel::flashinfer:
      return "FlashInfer";
    case GpuAttentionKernel::flashinfer_hopper:
      return "FlashInfer's kernel for Hopper";
    case GpuAttentionKernel::flashinfer_latent:
      return "FlashInfer's latent kernel";
    case GpuAttentionKernel::invariant:
      return "the batch-invariant kernel";
    case GpuAttentionKernel::any_shape:
      break;
  }
  return "the kernel for any shape";
}

bool decode_kernel_takes(const AttentionShape& shape) {
  constexpr std::array<std::int64_t, 7> dims{64, 80, 96, 112, 128, 192, 256};
  // A KV head with more than 8 query heads has several blocks.
  constexpr std::int64_t max_heads = 512, max_kv_heads = 128;
  return shape.latent == 0 && std::ranges::find(dims, shape.head_dim) != dims.end() &&
         shape.heads <= max_heads && shape.kv_heads <= max_kv_heads;
}

bool cascade_attention_takes(const AttentionShape& shape) {
  return decode_kernel_takes(shape) && 2 * shape.heads <= cascade_columns * shape.kv_heads;
}

bool cascade_pays(std::int64_t rows, std::int64_t saved_bytes) {
  struct Break {
    std::int64_t rows, megabytes;
  };
  // Where both took the same time, and a little more. The second kernel costs a few microseconds,
  // and what it leaves for each row costs more the more rows there are.
  constexpr std::array<Break, 4> breaks{{{8, 100}, {32, 140}, {128, 210}, {256, 280}}};
  constexpr std::int64_t megabyte = 1'000'000;
  for (const Break& known : breaks) {
    if (rows <= known.rows) return saved_bytes >= known.megabytes * megabyte;
  }
  return saved_bytes >= breaks.back().megabytes * megabyte * rows / breaks.back().rows;
}

bool latent_decode_kernel_takes(const AttentionShape& shape) {
  constexpr std::int64_t max_heads = 16;
  return flashinfer_latent_takes(shape) && shape.heads <= max_heads;
}

bool flashinfer_takes(const AttentionShape& shape) {
  constexpr std::int64_t max_head_dim = 256, step = 8;
  return shape.latent == 0 && shape.head_dim % step == 0 && shape.head_dim <= max_head_dim;
}

bool flashinfer_hopper_takes(const AttentionShape& shape) {
  constexpr std::int64_t head_dim = 128;
  return shape.latent == 0 && shape.head_dim == head_dim && shape.soft_cap == 0.0F &&
         shape.sinks.empty() && !shape.has_sinks;
}

bool flashinfer_latent_takes(const AttentionShape& shape) {
  constexpr std::int64_t latent = 512, rotated = 64;
  return shape.latent == latent && shape.head_dim == latent + rotated && is_plain(shape);
}

bool invariant_kernel_takes(const AttentionShape& shape) { return decode_kernel_takes(shape); }

GpuAttentionKernels gpu_attention_kernels(const AttentionShape& shape, DType dtype, DType stored,
                                          bool deterministic) {
  using enum GpuAttentionKernel;
  if (dtype != DType::bf16) return {};
  if (is_code(stored) && (deterministic || !decode_kernel_takes(shape))) return {};
  if (shape.index.top_k > 0) {
    const bool is_fast = !deterministic && flashinfer_latent_takes(shape);
    const GpuAttentionKernel kernel = is_fast ? flashinfer_latent : any_shape;
    return {kernel, kernel, kernel};
  }
  if (deterministic) {
    const GpuAttentionKernel kernel = invariant_kernel_takes(shape) ? invariant : any_shape;
    return {kernel, kernel, kernel};
  }
  GpuAttentionKernels kernels;
  if (flashinfer_latent_takes(shape)) kernels.prompts = flashinfer_latent;
  if (flashinfer_takes(shape)) kernels.prompts = flashinfer;
  kernels.long_prompts = flashinfer_hopper_takes(shape) ? flashinfer_hopper : kernels.prompts;
  kernels.decode = kernels.prompts;
  if (latent_decode_kernel_takes(shape)) kernels.decode = latent_decode;
  if (decode_kernel_takes(shape)) kernels.decode = decode;
  return kernels;
}

std::string describe(const AttentionShape& shape) {
  std::string text = shape.latent > 0 ? fmt::format("{} heads over latents of {} + {}", shape.heads,
                                                    shape.latent, shape.head_dim - shape.latent)
                                      : fmt::format("{} / {} heads of {}", shape.heads,
                                                    shape.kv_heads, shape.head_dim);
  if (shape.index.top_k > 0) {
    text += fmt::format(", to {} keys that {} index heads choose", shape.index.top_k,
                        shape.index.heads);
  }
  if (shape.window > 0) text += fmt::format(", window of {}", shape.window);
  if (shape.soft_cap > 0.0F) text += fmt::format(", soft cap of {}", shape.soft_cap);
  if (!shape.sinks.empty() || shape.has_sinks) text += ", sinks";
  return text;
}

}  // namespace troupe
