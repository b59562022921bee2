#include <cstring>
#include <vector>

#include "parallel/sharding/sharding.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class KvRows : public BothDevices {
 protected:
  static constexpr std::int64_t blocks = 300, block_size = 16;

  /// Makes a cache whose pages have random bytes.
  std::pair<DeviceTensor, DeviceTensor> random_cache(const AttentionShape& shape) {
    auto pages = gpu_->attention().allocate_kv(blocks, block_size, shape, GetParam());
    EXPECT_TRUE(pages.ok()) << pages.error().message;
    for (const Tensor& tensor : {pages->first.view(), pages->second.view()}) {
      if (tensor.empty()) continue;
      const HostTensor host(tensor.dtype(), tensor.shape());
      auto* const bytes = static_cast<std::uint8_t*>(host->data());
      for (std::size_t i = 0; i < host->bytes(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(engine_());
      }
      gpu_->memory().upload(host, tensor);
      EXPECT_TRUE(gpu_->stream().synchronize().ok());
    }
    return *std::move(pages);
  }
  void expect_same_bytes(const Tensor& found, const Tensor& expected) {
    if (expected.empty()) return;
    const HostTensor a(found.dtype(), found.shape()), b(found.dtype(), found.shape());
    gpu_->memory().download(found, a);
    gpu_->memory().download(expected, b);
    ASSERT_TRUE(gpu_->stream().synchronize().ok());
    EXPECT_EQ(std::memcmp(a->data(), b->data(), a->bytes()), 0);
  }
};

TEST_P(KvRows, of_every_slot_make_another_cache_the_same) {
  const AttentionShape shapes[] = {{.heads = 8, .kv_heads = 8, .head_dim = 128},
                                   {.heads = 2, .kv_heads = 1, .head_dim = 80},
                                   {.heads = 2, .kv_heads = 2, .head_dim = 10},
                                   {.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512}};
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(shape.head_dim);
    const auto from = random_cache(shape), to = random_cache(shape);
    std::vector<std::int32_t> slots;
    for (std::int64_t slot = 0; slot < blocks * block_size; ++slot) {
      slots.push_back(static_cast<std::int32_t>((slot * 53 + 7) % (blocks * block_size)));
    }
    for (const Slice part :
         {Slice{0, 1}, Slice{1, 4000}, Slice{4001, blocks * block_size - 4001}}) {
      const std::vector<std::int32_t> some(slots.begin() + part.begin, slots.begin() + part.end());
      const DeviceTensor places = exact(integers(some, {part.count}));
      const DeviceTensor rows = room(GetParam(), {part.count, shape.cached_elements()});
      gpu_->attention().gather_kv({from.first, from.second}, shape, places, rows);
      gpu_->attention().scatter_kv(rows, shape, places, {to.first, to.second});
    }
    expect_same_bytes(to.first, from.first);
    expect_same_bytes(to.second, from.second);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, KvRows, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace troupe
