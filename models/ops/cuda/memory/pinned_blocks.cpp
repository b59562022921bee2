#include "models/ops/cuda/memory/pinned_blocks.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include <cuda_runtime.h>
#include <sys/mman.h>

namespace troupe {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t small_page = 4096;
/// Shorter than the ranks' timeout for each other.
constexpr auto patience = std::chrono::seconds(10);

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Result<std::unique_ptr<HostBlocks>> HostBlocks::create(const Options& options) {
  std::unique_ptr<HostBlocks> host(new HostBlocks(options));
  // Reserves addresses only; memory is taken on first use.
  host->mapped_ = ::mmap(nullptr, host->mapped_bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host->mapped_ == MAP_FAILED) {
    host->mapped_ = nullptr;
    return fail(ErrorCode::resource_exhausted,
                "no addresses for {} bytes of host memory for swapped requests: lower "
                "engine.swap_space",
                host->mapped_bytes_);
  }
  const Result<void> locked = host->lock_slab(0);
  if (!locked.ok()) {
    host->locked_slabs_ = 0;
    return locked.error();
  }
  for (int i = 0; i < options.threads; ++i) {
    host->threads_.emplace_back([blocks = host.get()] { blocks->lock_slabs(); });
  }
  return host;
}

HostBlocks::HostBlocks(const Options& options)
    : options_(options),
      blocks_per_slab_(std::clamp<std::int64_t>(
          static_cast<std::int64_t>(options.slab_bytes / options.block_bytes), 1, options.blocks)),
      slabs_((options.blocks + blocks_per_slab_ - 1) / blocks_per_slab_),
      slab_stride_(
          rounded_up(static_cast<std::size_t>(blocks_per_slab_) * options.block_bytes, small_page)),
      mapped_bytes_(static_cast<std::size_t>(slabs_) * slab_stride_ + huge_page) {
  slabs_ahead_ = static_cast<std::int64_t>(options.bytes_ahead / slab_stride_);
}

HostBlocks::~HostBlocks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (mapped_ == nullptr) return;
  for (std::int64_t i = 0; i < locked_slabs_; ++i) cudaHostUnregister(slab(i));
  for (const std::int64_t i : locked_later_) cudaHostUnregister(slab(i));
  ::munmap(mapped_, mapped_bytes_);
}

std::byte* HostBlocks::slab(std::int64_t index) const {
  const auto begin = rounded_up(std::bit_cast<std::uintptr_t>(mapped_), huge_page);
  return std::bit_cast<std::byte*>(begin) + static_cast<std::size_t>(index) * slab_stride_;
}

std::size_t HostBlocks::bytes_of_slab(std::int64_t index) const {
  const std::int64_t blocks =
      std::min(blocks_per_slab_, options_.blocks - index * blocks_per_slab_);
  return rounded_up(static_cast<std::size_t>(blocks) * options_.block_bytes, small_page);
}

Result<void> HostBlocks::lock_slab(std::int64_t index) const {
  std::byte* const memory = slab(index);
  const std::size_t bytes = bytes_of_slab(index);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += small_page) memory[at] = std::byte{0};
  const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // the error is reported here, not by the next operation
  return fail(ErrorCode::resource_exhausted,
              "device {}: {} bytes of host memory for swapped requests cannot be page-locked after "
              "{} ({}): lower engine.swap_space; 0 does without",
              options_.device, bytes, static_cast<std::size_t>(index) * slab_stride_,
              cudaGetErrorString(error));
}

Result<std::byte*> HostBlocks::at(std::int64_t block) {
  const std::int64_t index = block / blocks_per_slab_;
  std::unique_lock lock(mutex_);
  const std::int64_t wanted = std::min(index + 1 + slabs_ahead_, slabs_);
  if (wanted > wanted_slabs_) {
    wanted_slabs_ = wanted;
    changed_.notify_all();
  }
  changed_.wait_for(lock, patience, [&] { return locked_slabs_ > index || error_; });
  if (locked_slabs_ > index) {
    return slab(index) + static_cast<std::size_t>(block % blocks_per_slab_) * options_.block_bytes;
  }
  if (error_) return *error_;
  return fail(ErrorCode::resource_exhausted,
              "device {}: the machine was too slow to give memory for swapped requests: lower "
              "engine.swap_space; 0 does without",
              options_.device);
}

void HostBlocks::lock_slabs() {
  cudaSetDevice(options_.device);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || error_ || wanted_slabs_ > begun_slabs_; });
    if (stopping_ || error_) return;
    const std::int64_t index = begun_slabs_++;
    lock.unlock();
    const Result<void> locked = lock_slab(index);
    lock.lock();
    if (locked.ok()) {
      locked_later_.insert(index);
      while (locked_later_.erase(locked_slabs_) > 0) ++locked_slabs_;
    } else if (!error_) {
      error_ = locked.error();
    }
    changed_.notify_all();
  }
}

}  // namespace troupe
