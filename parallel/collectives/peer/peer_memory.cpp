#include "parallel/collectives/peer/peer_memory.hpp"

#include <cstdint>
#include <vector>

#include <unistd.h>

namespace troupe {

/// The data that other ranks need to map a region.
struct PeerMemory::Address {
  std::int64_t process = 0;
  std::int32_t device = 0;
  std::int32_t padding = 0;
  std::uint64_t memory = 0;
  cudaIpcMemHandle_t handle{};
};

Result<void> PeerMemory::allocate(std::size_t bytes, std::size_t cleared) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return fail(ErrorCode::resource_exhausted, "device {}: no memory for {} bytes of messages ({})",
                device_, bytes, cudaGetErrorString(error));
  }
  regions_.of[rank_] = static_cast<std::byte*>(memory);
  if (cudaMemset(memory, 0, cleared) != cudaSuccess ||
      cudaMemset(regions_.of[rank_] + cleared, 0xFF, bytes - cleared) != cudaSuccess ||
      cudaDeviceSynchronize() != cudaSuccess) {
    return fail(ErrorCode::internal, "device {}: memory of messages cannot be cleared: {}", device_,
                cudaGetErrorString(cudaGetLastError()));
  }
  return {};
}

bool PeerMemory::reach(int peer, const Address& address) {
  auto& region = regions_.of[peer];
  if (address.process == ::getpid()) {
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, device_, address.device) != cudaSuccess || can == 0) {
      return false;
    }
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(address.device, 0);
    cudaGetLastError();
    if (enabled != cudaSuccess && enabled != cudaErrorPeerAccessAlreadyEnabled) return false;
    region = reinterpret_cast<std::byte*>(address.memory);  // NOLINT: another thread's pointer
    return true;
  }
  void* memory = nullptr;
  if (cudaIpcOpenMemHandle(&memory, address.handle, cudaIpcMemLazyEnablePeerAccess) !=
      cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  opened_[static_cast<std::size_t>(peer)] = true;
  region = static_cast<std::byte*>(memory);
  return true;
}

Result<std::unique_ptr<PeerMemory>> PeerMemory::open(int device, Collectives& host,
                                                     std::size_t bytes, std::size_t cleared) {
  const int size = host.size();
  if (size > max_peer_ranks) {
    return fail(ErrorCode::invalid_argument, "{} GPUs in a group; at most {}", size,
                max_peer_ranks);
  }
  std::unique_ptr<PeerMemory> made(new PeerMemory(device, host.rank()));
  TROUPE_CHECK(made->allocate(bytes, cleared));
  std::vector<Address> addresses(static_cast<std::size_t>(size));
  Address& own = addresses[static_cast<std::size_t>(host.rank())];
  own.process = ::getpid();
  own.device = device;
  own.memory = reinterpret_cast<std::uint64_t>(made->regions_.of[host.rank()]);
  bool reached = cudaIpcGetMemHandle(&own.handle, made->regions_.of[host.rank()]) == cudaSuccess;
  cudaGetLastError();
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size), 1);
  constexpr std::int64_t width = sizeof(Address);
  TROUPE_CHECK(host.all_gather(Tensor(&own, DType::u8, {1, width}),
                               Tensor(addresses.data(), DType::u8, {size, width}), one_each));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != host.rank()) {
      reached = made->reach(peer, addresses[static_cast<std::size_t>(peer)]) && reached;
    }
  }
  // All or none: a rank that others can access must be able to access them.
  std::vector<std::uint8_t> all(static_cast<std::size_t>(size));
  auto flag = static_cast<std::uint8_t>(reached ? 1 : 0);
  TROUPE_CHECK(host.all_gather(Tensor(&flag, DType::u8, {1, 1}),
                               Tensor(all.data(), DType::u8, {size, 1}), one_each));
  for (const std::uint8_t rank_reached : all) {
    if (rank_reached == 0) return std::unique_ptr<PeerMemory>();
  }
  return made;
}

PeerMemory::~PeerMemory() {
  cudaSetDevice(device_);
  for (int peer = 0; peer < max_peer_ranks; ++peer) {
    if (opened_[static_cast<std::size_t>(peer)]) cudaIpcCloseMemHandle(regions_.of[peer]);
  }
  if (regions_.of[rank_] != nullptr) cudaFree(regions_.of[rank_]);
}

}  // namespace troupe
