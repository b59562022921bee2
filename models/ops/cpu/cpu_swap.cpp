#include <cstring>
#include <utility>
#include <vector>

#include "models/ops/cpu/cpu_components.hpp"

namespace troupe {
namespace {

std::size_t bytes_of_block(const Tensor& pages) {
  return pages.bytes() / static_cast<std::size_t>(pages[0]);
}

/// Copies synchronously.
class CpuKvSwap final : public KvSwap {
 public:
  CpuKvSwap(std::vector<Tensor> caches, DeviceTensor host)
      : caches_(std::move(caches)), host_(std::move(host)) {}

  void copy_out(std::span<const SwappedBlock> blocks) override {
    for_pages(blocks, [](std::byte* cached, std::byte* kept, std::size_t bytes) {
      std::memcpy(kept, cached, bytes);
    });
  }
  void copy_in(std::span<const SwappedBlock> blocks) override {
    for_pages(blocks, [](std::byte* cached, std::byte* kept, std::size_t bytes) {
      std::memcpy(cached, kept, bytes);
    });
  }
  void join() override {}

 private:
  template <class Copy>
  void for_pages(std::span<const SwappedBlock> blocks, Copy copy) const {
    for (const SwappedBlock& swapped : blocks) {
      const auto block = static_cast<std::size_t>(swapped.block);
      std::byte* kept = static_cast<std::byte*>(host_->data()) +
                        std::int64_t{swapped.host_block} * host_.view()[1];
      for (const Tensor& pages : caches_) {
        const std::size_t bytes = bytes_of_block(pages);
        copy(static_cast<std::byte*>(pages.data()) + block * bytes, kept, bytes);
        kept += bytes;
      }
    }
  }

  std::vector<Tensor> caches_;
  DeviceTensor host_;  ///< [host blocks, bytes of a block in all caches]
};

}  // namespace

Result<std::unique_ptr<KvSwap>> CpuAttentionOps::make_swap(std::span<const KvLayer> caches,
                                                           std::int64_t host_blocks) {
  std::vector<Tensor> tensors;
  std::size_t bytes = 0;
  for (const KvLayer& cache : caches) {
    for (const Tensor& pages : {cache.keys, cache.values, cache.index_keys}) {
      if (pages.empty()) continue;
      tensors.push_back(pages);
      bytes += bytes_of_block(pages);
    }
  }
  auto host = allocate_on_cpu(DType::u8, {host_blocks, static_cast<std::int64_t>(bytes)});
  if (!host.ok()) {
    return fail(host.error().code, "{}: lower engine.swap_space", host.error().message);
  }
  return std::unique_ptr<KvSwap>(std::make_unique<CpuKvSwap>(std::move(tensors), *std::move(host)));
}

}  // namespace troupe
