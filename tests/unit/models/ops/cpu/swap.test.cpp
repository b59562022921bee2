#include <vector>

#include <gtest/gtest.h>

#include "tests/support/require.hpp"
#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

/// Fills a tensor with bytes that are unique to each position and tensor.
void number(const Tensor& tensor, std::uint32_t seed) {
  auto* words = static_cast<std::uint32_t*>(tensor.data());
  for (std::size_t i = 0; i < tensor.bytes() / sizeof(std::uint32_t); ++i) {
    words[i] = seed * 1'000'003 + static_cast<std::uint32_t>(i);
  }
}

std::vector<std::byte> bytes_of(const Tensor& tensor, std::int32_t block) {
  const std::size_t size = tensor.bytes() / static_cast<std::size_t>(tensor[0]);
  const auto* begin =
      static_cast<std::byte*>(tensor.data()) + static_cast<std::size_t>(block) * size;
  return {begin, begin + size};
}

TEST(CpuSwap, brings_blocks_back_to_other_places_and_touches_no_others) {
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  const AttentionShape plain{.heads = 4, .kv_heads = 2, .head_dim = 16};
  const AttentionShape latent{.heads = 4, .kv_heads = 1, .head_dim = 48, .latent = 32};
  std::vector<std::pair<DeviceTensor, DeviceTensor>> memory;
  std::vector<KvLayer> caches;
  for (const AttentionShape& shape : {plain, plain, latent}) {
    REQUIRE_OK(auto pages, ops->attention().allocate_kv(6, 16, shape, DType::bf16));
    memory.push_back(std::move(pages));
  }
  std::vector<Tensor> tensors;
  for (const auto& [keys, values] : memory) {
    caches.push_back({keys, values});
    for (const Tensor& tensor : {keys.view(), values.view()}) {
      if (tensor.empty()) continue;
      number(tensor, static_cast<std::uint32_t>(tensors.size() + 1));
      tensors.push_back(tensor);
    }
  }
  ASSERT_EQ(tensors.size(), 5U);
  std::vector<std::vector<std::byte>> before;
  for (const Tensor& tensor : tensors) {
    for (std::int32_t block = 0; block < 6; ++block) before.push_back(bytes_of(tensor, block));
  }

  REQUIRE_OK(const auto swap, ops->attention().make_swap(caches, 4));
  const std::vector<SwappedBlock> out{{.block = 5, .host_block = 0}, {.block = 1, .host_block = 3}};
  const std::vector<SwappedBlock> in{{.block = 0, .host_block = 3}, {.block = 4, .host_block = 0}};
  swap->copy_out(out);
  swap->join();
  swap->copy_in(in);
  swap->join();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int32_t found_in[] = {1, 1, 2, 3, 5, 5};
    for (std::int32_t block = 0; block < 6; ++block) {
      const auto& expected = before[6 * t + static_cast<std::size_t>(found_in[block])];
      EXPECT_EQ(bytes_of(tensors[t], block), expected) << "tensor " << t << ", block " << block;
    }
  }
}

}  // namespace
}  // namespace troupe
