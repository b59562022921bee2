#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/support/require.hpp"

namespace troupe {
namespace {

constexpr std::int64_t blocks = 9;
constexpr std::int32_t block_size = 16;

/// A cache with pages of random bytes, each xor `flip`.
struct Cache {
  Cache(Ops& ops, const AttentionShape& shape, DType dtype, unsigned char flip) {
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, dtype);
    EXPECT_TRUE(pages.ok()) << pages.error().message;
    memory = *std::move(pages);
    std::mt19937 random(1);
    for (const DeviceTensor* tensor : {&memory.first, &memory.second}) {
      auto* const bytes = static_cast<unsigned char*>((*tensor)->data());
      for (std::size_t i = 0; i < (*tensor)->bytes(); ++i) {
        bytes[i] = static_cast<unsigned char>(random()) ^ flip;
      }
    }
  }
  KvLayer layer() const { return {memory.first, memory.second}; }
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all;
    for (const DeviceTensor* tensor : {&memory.first, &memory.second}) {
      const auto* const bytes = static_cast<const unsigned char*>((*tensor)->data());
      all.insert(all.end(), bytes, bytes + (*tensor)->bytes());
    }
    return all;
  }

  std::pair<DeviceTensor, DeviceTensor> memory;
};

class KvRows : public testing::TestWithParam<std::tuple<DType, bool, int>> {};

TEST_P(KvRows, of_every_slot_make_another_cache_the_same_and_of_some_leave_the_others) {
  const auto [dtype, is_latent, threads] = GetParam();
  const AttentionShape shape{
      .heads = 6, .kv_heads = is_latent ? 1 : 3, .head_dim = 24, .latent = is_latent ? 16 : 0};
  REQUIRE_OK(const auto ops, make_cpu_ops({.threads = threads, .dtype = DType::f32}));
  const Cache from(*ops, shape, dtype, 0), to(*ops, shape, dtype, 0xff);
  const std::vector<unsigned char> before = to.bytes();
  std::vector<std::int32_t> slots;
  for (std::int32_t slot = 0; slot < blocks * block_size; ++slot) {
    slots.push_back((slot * 53 + 7) % (blocks * block_size));
  }
  const auto copy = [&](std::span<std::int32_t> some) {
    const auto count = static_cast<std::int64_t>(some.size());
    const Tensor places(some.data(), DType::i32, {count});
    const HostTensor rows(dtype, {count, shape.stored_elements(dtype)});
    ops->attention().gather_kv(from.layer(), shape, places, rows);
    ops->attention().scatter_kv(rows, shape, places, to.layer());
  };
  const std::size_t some = slots.size() / 3;
  copy(std::span(slots).first(some));
  const std::vector<unsigned char> expected = from.bytes(), partly = to.bytes();
  const std::size_t width = size_of(dtype);
  std::size_t copied = 0;
  for (std::size_t at = 0; at < partly.size(); at += width) {
    const bool is_copied = std::memcmp(&partly[at], &expected[at], width) == 0;
    copied += is_copied ? 1 : 0;
    ASSERT_TRUE(is_copied || std::memcmp(&partly[at], &before[at], width) == 0) << "byte " << at;
  }
  EXPECT_EQ(copied, some * static_cast<std::size_t>(shape.stored_elements(dtype)));
  copy(std::span(slots).subspan(some));
  EXPECT_EQ(to.bytes(), expected);
}

INSTANTIATE_TEST_SUITE_P(Cpu, KvRows,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::i8,
                                                          DType::f8_e4m3),
                                          testing::Bool(), testing::Values(1, 3)));

}  // namespace
}  // namespace troupe
