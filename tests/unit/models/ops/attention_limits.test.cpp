#include "models/ops/attention_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

AttentionShape shape_of(std::int64_t head_dim, std::int64_t latent = 0) {
  AttentionShape shape{4, latent > 0 ? 1 : 2, head_dim, 0.1F};
  shape.latent = latent;
  return shape;
}

TEST(AttentionLimits, let_the_cpu_run_heads_of_any_size) {
  for (const std::int64_t dim : {2, 24, 40, 80, 96, 120, 576, 1024}) {
    EXPECT_TRUE(check_cpu_attention(shape_of(dim), 16, DType::bf16).ok()) << dim;
  }
  EXPECT_TRUE(check_cpu_attention(shape_of(56, 40), 16, DType::f32).ok());
}

TEST(AttentionLimits, name_the_head_that_a_gpu_cannot_run) {
  EXPECT_TRUE(check_gpu_attention(shape_of(24), DType::bf16).ok());
  EXPECT_TRUE(check_gpu_attention(shape_of(576, 512), DType::bf16).ok());
  const AttentionShape too_large[] = {shape_of(640), shape_of(640, 576), shape_of(57, 41)};
  for (const AttentionShape& shape : too_large) {
    const auto checked = check_gpu_attention(shape, DType::bf16);
    ASSERT_FALSE(checked.ok()) << shape.head_dim;
    EXPECT_EQ(checked.error().code, ErrorCode::unsupported);
    EXPECT_THAT(checked.error().message, testing::HasSubstr(std::to_string(shape.head_dim)));
  }
}

TEST(AttentionLimits, of_a_kv_cache_of_codes_are_tighter_on_gpus) {
  for (const DType codes : {DType::i8, DType::f8_e4m3, DType::i4x2}) {
    EXPECT_TRUE(check_cpu_attention(shape_of(24), 16, codes).ok());
    EXPECT_EQ(check_cpu_attention(shape_of(56, 40), 16, codes).ok(), codes != DType::i4x2);
    EXPECT_TRUE(check_cpu_attention(shape_of(90), 16, codes).ok());
    for (const std::int64_t dim : {24, 64, 120, 128, 256}) {
      EXPECT_TRUE(check_gpu_attention(shape_of(dim), codes).ok()) << dim;
    }
    for (const AttentionShape& shape : {shape_of(90), shape_of(260), shape_of(576, 512)}) {
      const auto refused = check_gpu_attention(shape, codes);
      ASSERT_FALSE(refused.ok()) << shape.head_dim;
      EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
      EXPECT_THAT(refused.error().message, testing::HasSubstr("kv_cache.dtype"));
      EXPECT_THAT(refused.error().message, testing::HasSubstr(std::string(to_string(codes))));
    }
  }
  EXPECT_FALSE(check_cpu_attention(shape_of(24), 16, DType::u8).ok());
  EXPECT_FALSE(check_gpu_attention(shape_of(24), DType::u8).ok());
}

TEST(AttentionLimits, of_a_kv_cache_of_4_bits_are_even_heads_without_latents) {
  const auto latent = check_cpu_attention(shape_of(56, 40), 16, DType::i4x2);
  ASSERT_FALSE(latent.ok());
  EXPECT_THAT(latent.error().message, testing::HasSubstr("latent attention"));
  const auto odd = check_cpu_attention(shape_of(25), 16, DType::i4x2);
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, testing::HasSubstr("head_dim is 25"));
}

TEST(AttentionLimits, bound_the_tokens_of_latent_attention_on_a_gpu) {
  AttentionShape shape = shape_of(576, 512);
  shape.heads = 128;
  EXPECT_EQ(max_gpu_pass_tokens(shape, DType::bf16, 256), 15360) << "one tile of heads a token";
  EXPECT_EQ(max_gpu_pass_tokens(shape, DType::f32, 256), std::nullopt);
  shape.heads = 16;
  const auto most = max_gpu_pass_tokens(shape, DType::bf16, 256);
  ASSERT_TRUE(most.has_value());
  // All sequences but one have a token, in a tile of its own; the last one has the rest.
  const std::int64_t rest = *most - 255;
  EXPECT_LE(255 + (rest * 16 + latent_tile_rows - 1) / latent_tile_rows, max_latent_tiles);
  EXPECT_EQ(max_gpu_pass_tokens(shape_of(128), DType::bf16, 256), std::nullopt);
}

}  // namespace
}  // namespace troupe
