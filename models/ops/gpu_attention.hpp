#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/ops/ops.hpp"

namespace troupe {

// The kernels for attention on GPUs, known before there is a GPU. All but any_shape compute in bf16
// over a cache of bf16; decode also reads codes of 8 or 4 bits, and FlashInfer's kernels read bf16
// that codes become for a while.

enum class GpuAttentionKernel : std::uint8_t {
  decode,             ///< Troupe's, one row a sequence
  latent_decode,      ///< Troupe's over latents, one row a sequence
  flashinfer,         ///< any number of rows
  flashinfer_hopper,  ///< 1,024 rows of a prompt and more that see 2,048 to 293,888 positions
  flashinfer_latent,  ///< any number of rows over latents
  invariant,          ///< Troupe's for engine.deterministic
  any_shape,          ///< slow; takes every shape and dtype
};
/// Completes "decode steps by ...".
std::string_view to_string(GpuAttentionKernel kernel);

/// Device memory of a cache of codes for keys and values of prompts in bf16.
constexpr std::size_t coded_prompt_bytes = std::size_t{256} << 20;

bool decode_kernel_takes(const AttentionShape& shape);
/// Query heads of a KV head, of all rows together, that a block of cascade attention takes.
constexpr std::int64_t cascade_columns = 64;
/// True if the decode kernel reads a prefix that sequences share once for several of them: their
/// query heads that share a KV head fit a block.
bool cascade_attention_takes(const AttentionShape& shape);
/// True if `rows` of a decode step take less time with prefixes that are read together, which saves
/// them reading `saved_bytes` of keys and values on a GPU: measured on an H100
/// (docs/benchmarks.md).
bool cascade_pays(std::int64_t rows, std::int64_t saved_bytes);
bool latent_decode_kernel_takes(const AttentionShape& shape);
bool flashinfer_takes(const AttentionShape& shape);
bool flashinfer_hopper_takes(const AttentionShape& shape);
bool flashinfer_latent_takes(const AttentionShape& shape);
bool invariant_kernel_takes(const AttentionShape& shape);

/// The kernels of a Hopper GPU, for KV blocks of a multiple of 16 tokens.
struct GpuAttentionKernels {
  GpuAttentionKernel decode = GpuAttentionKernel::any_shape;   ///< passes of one row a sequence
  GpuAttentionKernel prompts = GpuAttentionKernel::any_shape;  ///< other passes
  GpuAttentionKernel long_prompts = GpuAttentionKernel::any_shape;  ///< in these

  bool operator==(const GpuAttentionKernels&) const = default;
  bool any_slow() const {
    return decode == GpuAttentionKernel::any_shape || prompts == GpuAttentionKernel::any_shape;
  }
};
/// `stored`: of the KV cache.
GpuAttentionKernels gpu_attention_kernels(const AttentionShape& shape, DType dtype, DType stored,
                                          bool deterministic);

/// "32 / 8 heads of 128, window of 4096".
std::string describe(const AttentionShape& shape);

}  // namespace troupe
