#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/cuda/memory/pinned_blocks.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Swap : public BothDevices {
 protected:
  /// Makes caches of `layers` layers, a tensor of keys and one of values each, and one of index
  /// keys of `index_dim` elements, with random content, copied to `expected_` [tensors][blocks].
  void make_caches(int layers, std::int64_t blocks, const AttentionShape& shape,
                   int index_dim = 0) {
    for (int layer = 0; layer < layers; ++layer) {
      auto pages = gpu_->attention().allocate_kv(blocks, 16, shape, GetParam());
      ASSERT_TRUE(pages.ok()) << pages.error().message;
      memory_.push_back(*std::move(pages));
      const auto& [keys, values] = memory_.back();
      Tensor index_keys;
      if (index_dim > 0) {
        index_memory_.push_back(room(GetParam(), {blocks, 1, 16, index_dim}));
        index_keys = index_memory_.back();
      }
      caches_.push_back({.keys = keys, .values = values, .index_keys = index_keys});
      for (const Tensor& tensor : {keys.view(), values.view(), index_keys}) {
        if (tensor.empty()) continue;
        HostTensor host(tensor.dtype(), tensor.shape());
        const auto bytes = std::span(static_cast<std::uint8_t*>(host->data()), host->bytes());
        for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(engine_());
        gpu_->memory().upload(host, tensor);
        ASSERT_TRUE(gpu_->stream().synchronize().ok());
        tensors_.push_back(tensor);
        expected_.push_back(std::move(host));
      }
    }
  }
  void expect_bytes() {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const HostTensor found(tensors_[t].dtype(), tensors_[t].shape());
      gpu_->memory().download(tensors_[t], found);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      EXPECT_EQ(std::memcmp(found->data(), expected_[t]->data(), found->bytes()), 0)
          << "tensor " << t;
    }
  }
  /// In the expected content: moves block `from` of `source`, as it was, to `to`.
  void expect_moved(const std::vector<HostTensor>& source, std::int32_t from, std::int32_t to) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const std::size_t bytes = source[t]->bytes() / static_cast<std::size_t>(source[t].view()[0]);
      std::memcpy(
          static_cast<std::byte*>(expected_[t]->data()) + static_cast<std::size_t>(to) * bytes,
          static_cast<std::byte*>(source[t]->data()) + static_cast<std::size_t>(from) * bytes,
          bytes);
    }
  }
  std::vector<HostTensor> copies() const {
    std::vector<HostTensor> all;
    for (const HostTensor& tensor : expected_) {
      all.emplace_back(tensor->dtype(), tensor->shape());
      std::memcpy(all.back()->data(), tensor->data(), tensor->bytes());
    }
    return all;
  }

  std::vector<std::pair<DeviceTensor, DeviceTensor>> memory_;
  std::vector<DeviceTensor> index_memory_;
  std::vector<KvLayer> caches_;
  std::vector<Tensor> tensors_;
  std::vector<HostTensor> expected_;
};

TEST_P(Swap, brings_blocks_back_to_other_places_and_touches_no_others) {
  constexpr std::int64_t blocks = 700, host_blocks = 1700;
  make_caches(3, blocks, {.heads = 8, .kv_heads = 2, .head_dim = 64});
  make_caches(1, blocks, {.heads = 8, .kv_heads = 1, .head_dim = 96, .latent = 64}, 128);
  auto made = gpu_->attention().make_swap(caches_, host_blocks);
  ASSERT_TRUE(made.ok()) << made.error().message;
  KvSwap& swap = **made;
  const auto device_order = shuffled(blocks), host_order = shuffled(host_blocks);
  for (const std::size_t count : {1U, 7U, 256U, 257U, 600U}) {
    SCOPED_TRACE(count);
    const std::vector<HostTensor> before = copies();
    std::vector<SwappedBlock> out, in;
    for (std::size_t i = 0; i < count; ++i) {
      // In runs, as the scheduler allocates them, and scattered.
      const auto host = count == 600 ? static_cast<std::int32_t>(i) + 900 : host_order[i];
      out.push_back({device_order[i], host});
      in.push_back({device_order[blocks - 1 - i], host});
    }
    swap.copy_out(out);
    swap.join();
    // From here on the copied blocks may be overwritten.
    for (const Tensor& tensor : tensors_) {
      const HostTensor nothing(tensor.dtype(), tensor.shape());
      gpu_->memory().upload(nothing, tensor);
    }
    for (HostTensor& tensor : expected_) std::memset(tensor->data(), 0, tensor->bytes());
    swap.copy_in(in);
    swap.join();
    for (std::size_t i = 0; i < count; ++i) expect_moved(before, out[i].block, in[i].block);
    expect_bytes();
    // Everything is random again.
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const auto bytes =
          std::span(static_cast<std::uint8_t*>(expected_[t]->data()), expected_[t]->bytes());
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(engine_());
      gpu_->memory().upload(expected_[t], tensors_[t]);
    }
    ASSERT_TRUE(gpu_->stream().synchronize().ok());
  }
}

TEST_P(Swap, begins_after_what_was_enqueued_before_and_ends_before_the_join) {
  constexpr std::int64_t blocks = 64, width = 1024;
  const AttentionShape shape{.heads = 8, .kv_heads = 8, .head_dim = 128};
  auto pages = gpu_->attention().allocate_kv(blocks, 16, shape, GetParam());
  ASSERT_TRUE(pages.ok()) << pages.error().message;
  const Tensor keys = pages->first, values = pages->second;
  const KvLayer cache{keys, values};
  auto made = gpu_->attention().make_swap(std::span(&cache, 1), blocks);
  ASSERT_TRUE(made.ok()) << made.error().message;
  KvSwap& swap = **made;
  const Shape rows{keys.elements() / width, width};
  const HostTensor stored = random(rows), nothing(DType::f32, rows);
  const DeviceTensor written = activation(stored);
  const DeviceTensor busy = room(GetParam(), {1 << 13, 1 << 14}),
                     more = room(GetParam(), busy->shape());
  const auto work_for_long = [&] {
    for (int i = 0; i < 40; ++i) gpu_->dense().add(busy, more);
  };
  std::vector<SwappedBlock> out, in;
  for (std::int32_t i = 0; i < blocks; ++i) {
    out.push_back({i, i});
    in.push_back({static_cast<std::int32_t>(blocks) - 1 - i, i});
  }
  work_for_long();
  gpu_->dense().add(keys.reshaped(rows), written);  // to zeros
  swap.copy_out(out);
  work_for_long();
  swap.join();
  gpu_->dense().add(keys.reshaped(rows), written);  // must not be what was copied
  swap.copy_in(in);
  work_for_long();
  swap.join();
  gpu_->dense().add(values.reshaped(rows), keys.reshaped(rows));  // must find what was copied
  const HostTensor found = back(values);
  const std::int64_t each = keys.elements() / blocks;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto* expected = stored->as<float>() + (blocks - 1 - block) * each;
    const auto* there = found->as<float>() + block * each;
    ASSERT_TRUE(std::equal(expected, expected + each, there)) << "block " << block;
  }
}

TEST(HostBlocks, are_page_locked_and_go_on_where_they_say) {
  constexpr std::size_t bytes = (std::size_t{3} << 20) + 512;
  auto made = HostBlocks::create(
      {.blocks = 11, .block_bytes = bytes, .slab_bytes = std::size_t{8} << 20, .bytes_ahead = 0});
  if (!made.ok()) GTEST_SKIP() << "no GPU: " << made.error().message;
  HostBlocks& blocks = **made;
  std::vector<std::byte*> found;
  for (std::int64_t i = 0; i < 11; ++i) {
    const Result<std::byte*> at = blocks.at(i);
    ASSERT_TRUE(at.ok()) << at.error().message;
    found.push_back(*at);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, *at + bytes - 1), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost) << "block " << i;
    std::memset(*at, static_cast<int>(i + 1), bytes);
    if (i > 0) {
      EXPECT_EQ(blocks.continues(i), found[i - 1] + bytes == *at) << "block " << i;
    }
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(*blocks.at(static_cast<std::int64_t>(i)), found[i]);
    const auto is_own = [&](std::byte byte) { return byte == static_cast<std::byte>(i + 1); };
    EXPECT_TRUE(std::all_of(found[i], found[i] + bytes, is_own)) << "block " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Swap, testing::Values(DType::f32, DType::bf16));

}  // namespace
}  // namespace troupe
