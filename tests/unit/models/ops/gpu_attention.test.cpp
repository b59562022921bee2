#include "models/ops/gpu_attention.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using enum GpuAttentionKernel;

AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
}

TEST(GpuAttention, takes_fast_kernels_for_all_heads_that_families_have) {
  const HostTensor sinks(DType::f32, {71});
  for (const std::int64_t dim : {64, 80, 96, 112, 128, 192, 256}) {
    for (const auto& [heads, kv_heads] : {std::pair{71, 1}, {16, 16}, {96, 8}, {64, 4}, {28, 4}}) {
      AttentionShape shape = shape_of(heads, kv_heads, dim);
      shape.window = 4096;
      shape.soft_cap = 50.0F;
      shape.sinks = sinks;
      EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false),
                (GpuAttentionKernels{decode, flashinfer, flashinfer}))
          << describe(shape);
      EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, true),
                (GpuAttentionKernels{invariant, invariant, invariant}))
          << describe(shape);
    }
  }
}

TEST(GpuAttention, takes_latent_kernels_for_latents_alone) {
  AttentionShape shape{.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512};
  EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false),
            (GpuAttentionKernels{latent_decode, flashinfer_latent, flashinfer_latent}));
  shape.heads = 128;
  EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false),
            (GpuAttentionKernels{flashinfer_latent, flashinfer_latent, flashinfer_latent}));
  shape.soft_cap = 30.0F;
  EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false), GpuAttentionKernels{});
}

TEST(GpuAttention, falls_to_the_slow_kernel_for_float32_and_odd_heads) {
  EXPECT_TRUE(gpu_attention_kernels(shape_of(4, 2, 64), DType::f32, DType::f32, false).any_slow());
  EXPECT_TRUE(
      gpu_attention_kernels(shape_of(4, 2, 90), DType::bf16, DType::bf16, false).any_slow());
  // Heads that only prompts' kernel has take it in decode steps, too.
  EXPECT_EQ(gpu_attention_kernels(shape_of(4, 2, 120), DType::bf16, DType::bf16, false),
            (GpuAttentionKernels{flashinfer, flashinfer, flashinfer}));
}

TEST(GpuAttention, is_batch_invariant_or_slow_where_it_is_deterministic) {
  EXPECT_EQ(gpu_attention_kernels(shape_of(32, 8, 128), DType::bf16, DType::bf16, true),
            (GpuAttentionKernels{invariant, invariant, invariant}));
  EXPECT_TRUE(
      gpu_attention_kernels(shape_of(12, 4, 40), DType::bf16, DType::bf16, true).any_slow());
  const AttentionShape latent{.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512};
  EXPECT_TRUE(gpu_attention_kernels(latent, DType::bf16, DType::bf16, true).any_slow());
}

TEST(GpuAttention, reads_codes_by_the_decode_kernel_and_widened_by_flashinfer) {
  for (const DType codes : {DType::i8, DType::f8_e4m3, DType::i4x2}) {
    EXPECT_EQ(gpu_attention_kernels(shape_of(32, 8, 128), DType::bf16, codes, false),
              (GpuAttentionKernels{decode, flashinfer, flashinfer_hopper}));
    EXPECT_EQ(gpu_attention_kernels(shape_of(12, 4, 96), DType::bf16, codes, false),
              (GpuAttentionKernels{decode, flashinfer, flashinfer}));
    for (const bool deterministic : {false, true}) {
      EXPECT_TRUE(
          gpu_attention_kernels(shape_of(4, 2, 120), DType::bf16, codes, deterministic).any_slow());
    }
    EXPECT_TRUE(gpu_attention_kernels(shape_of(32, 8, 128), DType::bf16, codes, true).any_slow());
  }
}

TEST(GpuAttention, takes_the_kernel_for_hopper_for_long_prompts_of_heads_of_128) {
  AttentionShape shape = shape_of(32, 8, 128);
  shape.window = 4096;
  EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false),
            (GpuAttentionKernels{decode, flashinfer, flashinfer_hopper}));
  shape.has_sinks = true;
  EXPECT_EQ(gpu_attention_kernels(shape, DType::bf16, DType::bf16, false),
            (GpuAttentionKernels{decode, flashinfer, flashinfer}));
}

TEST(GpuAttention, cascades_where_a_block_holds_the_heads_of_two_rows) {
  EXPECT_TRUE(cascade_attention_takes(shape_of(32, 8, 128)));
  EXPECT_TRUE(cascade_attention_takes(shape_of(32, 1, 64)));
  EXPECT_FALSE(cascade_attention_takes(shape_of(71, 1, 64)));
  EXPECT_FALSE(cascade_attention_takes(shape_of(32, 8, 120)));
  EXPECT_FALSE(
      cascade_attention_takes({.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512}));
}

TEST(GpuAttention, cascades_where_it_saves_much) {
  constexpr std::int64_t bytes = 4096;  // of a position of Qwen3-8B
  EXPECT_FALSE(cascade_pays(2, bytes * 8000));
  EXPECT_FALSE(cascade_pays(16, bytes * 15 * 1024));
  EXPECT_TRUE(cascade_pays(16, bytes * 15 * 4000));
  EXPECT_FALSE(cascade_pays(128, bytes * 120 * 256));
  EXPECT_TRUE(cascade_pays(128, bytes * 120 * 512));
  EXPECT_FALSE(cascade_pays(1024, bytes * 1000 * 256));
  EXPECT_TRUE(cascade_pays(1024, bytes * 1000 * 512));
}

TEST(GpuAttention, describes_a_shape) {
  AttentionShape shape = shape_of(32, 8, 128);
  shape.window = 4096;
  EXPECT_EQ(describe(shape), "32 / 8 heads of 128, window of 4096");
  EXPECT_EQ(describe({.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512}),
            "16 heads over latents of 512 + 64");
}

}  // namespace
}  // namespace troupe
