// Copies blocks of the KV cache to host memory and back, overlapping with the stream's operations.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/memory/pinned_blocks.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int page_threads = 256;
constexpr int max_blocks_at_once = 256;
constexpr std::size_t staging_bytes = std::size_t{32} << 20;

/// A block's pages in one cache tensor, and their offset among those of all tensors.
struct CachePages {
  uint4* memory;
  unsigned units;  ///< of 16 bytes, per block
  unsigned first_unit;
};
struct BlockList {
  std::int32_t blocks[max_blocks_at_once];
};

/// Grid: tensors, blocks. `staging` [blocks][units of a block in all tensors].
template <bool gather>
__global__ void __launch_bounds__(page_threads)
    move_pages(const CachePages* caches, BlockList list, unsigned units_of_block, uint4* staging) {
  const CachePages cache = caches[blockIdx.x];
  uint4* const page = cache.memory + std::int64_t{list.blocks[blockIdx.y]} * cache.units;
  uint4* const staged = staging + std::int64_t{blockIdx.y} * units_of_block + cache.first_unit;
  for (unsigned i = threadIdx.x; i < cache.units; i += page_threads) {
    if constexpr (gather) {
      staged[i] = page[i];
    } else {
      page[i] = staged[i];
    }
  }
}

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

/// A block of the cache consists of pages all over the device's memory, but is contiguous in host
/// memory: a kernel gathers as many blocks as fit into `staging_`, from where the copy engine takes
/// them.
class CudaKvSwap final : public KvSwap {
 public:
  static Result<std::unique_ptr<KvSwap>> create(CudaContext& context,
                                                std::span<const KvLayer> caches,
                                                std::int64_t host_blocks) {
    std::unique_ptr<CudaKvSwap> swap(new CudaKvSwap(context));
    TROUPE_CHECK(swap->allocate(caches, host_blocks));
    return std::unique_ptr<KvSwap>(std::move(swap));
  }
  ~CudaKvSwap() override {
    (void)context_.stream();
    if (copies_ != nullptr) cudaStreamSynchronize(copies_.get());
  }
  CudaKvSwap(const CudaKvSwap&) = delete;
  CudaKvSwap& operator=(const CudaKvSwap&) = delete;

  void copy_out(std::span<const SwappedBlock> blocks) override {
    in_parts(blocks, [this](auto part) {
      move<true>(part);
      copy(part, cudaMemcpyDeviceToHost);
    });
  }
  void copy_in(std::span<const SwappedBlock> blocks) override {
    in_parts(blocks, [this](auto part) {
      copy(part, cudaMemcpyHostToDevice);
      move<false>(part);
    });
  }
  void join() override {
    if (!is_copying_) return;
    is_copying_ = false;
    check(cudaEventRecord(copied_.get(), copies_.get()));
    check(cudaStreamWaitEvent(context_.stream(), copied_.get()));
  }

 private:
  explicit CudaKvSwap(CudaContext& context) : context_(context) {}

  void check(cudaError_t error) { context_.check(error, "a copy of KV blocks in host memory"); }

  Result<void> allocate(std::span<const KvLayer> caches, std::int64_t host_blocks) {
    (void)context_.stream();
    cudaStream_t stream = nullptr;
    TROUPE_CHECK(cuda_done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                           "a stream for KV blocks in host memory"));
    copies_.reset(stream);
    for (Event* event : {&before_, &copied_}) {
      cudaEvent_t created = nullptr;
      TROUPE_CHECK(cuda_done(cudaEventCreateWithFlags(&created, cudaEventDisableTiming),
                             "an event for KV blocks in host memory"));
      event->reset(created);
    }
    std::vector<CachePages> tensors;
    const auto add = [&](const Tensor& pages, std::size_t all_bytes) -> Result<void> {
      const std::size_t bytes = all_bytes / static_cast<std::size_t>(pages[0]);
      if (bytes % sizeof(uint4) != 0) {
        return fail(ErrorCode::unsupported,
                    "the GPU swaps blocks of multiples of 16 bytes; this cache's have {}", bytes);
      }
      const auto units = static_cast<unsigned>(bytes / sizeof(uint4));
      tensors.push_back({static_cast<uint4*>(pages.data()), units, units_of_block_});
      units_of_block_ += units;
      return {};
    };
    for (const KvLayer& cache : caches) {
      // Pages of codes have keys and values of a KV head by turns, in one piece of memory.
      const bool in_one = is_code(cache.keys.dtype());
      TROUPE_CHECK(add(cache.keys, cache.keys.bytes() + (in_one ? cache.values.bytes() : 0)));
      for (const Tensor& pages : {in_one ? Tensor() : cache.values, cache.index_keys}) {
        if (!pages.empty()) TROUPE_CHECK(add(pages, pages.bytes()));
      }
    }
    tensors_ = static_cast<unsigned>(tensors.size());
    const std::size_t block_bytes = units_of_block_ * sizeof(uint4);
    at_once_ = std::clamp<std::size_t>(staging_bytes / block_bytes, 1, max_blocks_at_once);
    TROUPE_TRY(staging_,
               context_.allocate(DType::u8, {static_cast<std::int64_t>(at_once_ * block_bytes)}));
    const Tensor host(tensors.data(), DType::u8,
                      {static_cast<std::int64_t>(tensors.size() * sizeof(CachePages))});
    TROUPE_TRY(caches_, context_.allocate(DType::u8, host.shape()));
    context_.upload(host, caches_.view());
    TROUPE_CHECK(context_.synchronize());
    // Kernels are loaded when first asked for, which may wait for the device.
    cudaFuncAttributes attributes{};
    TROUPE_CHECK(cuda_done(cudaFuncGetAttributes(&attributes, move_pages<true>),
                           "the kernel that gathers KV blocks"));
    TROUPE_CHECK(cuda_done(cudaFuncGetAttributes(&attributes, move_pages<false>),
                           "the kernel that scatters KV blocks"));
    TROUPE_TRY(host_, HostBlocks::create({.device = context_.device(),
                                          .blocks = host_blocks,
                                          .block_bytes = block_bytes}));
    return {};
  }

  /// Copies the blocks as they are after the work enqueued so far.
  void begin_copies(std::span<const SwappedBlock> blocks) {
    if (blocks.empty() || std::exchange(is_copying_, true)) return;
    check(cudaEventRecord(before_.get(), context_.stream()));
    check(cudaStreamWaitEvent(copies_.get(), before_.get()));
  }

  /// Begins copies, and lets `carry` take as many blocks at a time as fit in staging_.
  template <class Carry>
  void in_parts(std::span<const SwappedBlock> blocks, Carry carry) {
    begin_copies(blocks);
    while (!blocks.empty()) {
      const std::size_t count = std::min(blocks.size(), at_once_);
      carry(blocks.first(count));
      blocks = blocks.subspan(count);
    }
  }

  template <bool gather>
  void move(std::span<const SwappedBlock> blocks) {
    BlockList list;
    for (std::size_t i = 0; i < blocks.size(); ++i) list.blocks[i] = blocks[i].block;
    const dim3 grid(tensors_, static_cast<unsigned>(blocks.size()));
    move_pages<gather><<<grid, page_threads, 0, copies_.get()>>>(
        static_cast<const CachePages*>(caches_->data()), list, units_of_block_,
        static_cast<uint4*>(staging_->data()));
    check(cudaPeekAtLastError());
  }

  /// One copy for blocks that are adjacent in host memory.
  void copy(std::span<const SwappedBlock> blocks, cudaMemcpyKind kind) {
    const std::size_t block_bytes = units_of_block_ * sizeof(uint4);
    auto* staged = static_cast<std::byte*>(staging_->data());
    for (std::size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
      const std::int32_t first = blocks[begin].host_block;
      for (end = begin + 1; end < blocks.size(); ++end) {
        const std::int32_t next = blocks[end].host_block;
        if (next != first + static_cast<std::int32_t>(end - begin) || !host_->continues(next))
          break;
      }
      const Result<std::byte*> found = host_->at(first);
      if (!found.ok()) return context_.check(found.error());
      std::byte* const host = *found;
      std::byte* const device = staged + begin * block_bytes;
      const bool out = kind == cudaMemcpyDeviceToHost;
      check(cudaMemcpyAsync(out ? host : device, out ? device : host, (end - begin) * block_bytes,
                            kind, copies_.get()));
    }
  }

  CudaContext& context_;
  Stream copies_;
  Event before_, copied_;
  bool is_copying_ = false;  ///< since the last join()
  std::unique_ptr<HostBlocks> host_;
  DeviceTensor caches_;   ///< [tensors_] CachePages, as bytes
  DeviceTensor staging_;  ///< [at_once_][a block's bytes]
  unsigned tensors_ = 0;
  unsigned units_of_block_ = 0;  ///< in all tensors
  std::size_t at_once_ = 1;      ///< blocks
};

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<KvSwap>> CudaAttentionOps::make_swap(std::span<const KvLayer> caches,
                                                            std::int64_t host_blocks) {
  return cuda::CudaKvSwap::create(context_, caches, host_blocks);
}

}  // namespace troupe
