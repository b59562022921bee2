#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "parallel/device/tensor.hpp"

namespace troupe {

/// Most ranks of one sum.
inline constexpr int max_peer_ranks = 8;

/// Partial sums up to this size are sent word by word with a mark that says that it has come.
inline constexpr std::size_t most_marked_bytes = 128u << 10;
/// Partial sums up to this size are put into a slot, and read from there by the others.
inline constexpr std::size_t most_slot_bytes = 8u << 20;
/// Three and more ranks read whole slots up to this size; of larger ones each rank adds a share,
/// which the others read.
inline constexpr std::size_t most_whole_bytes = 512u << 10;

/// Each rank's region: counters, marked words of every rank twice over, two slots, and the sums of
/// a share, which are at most as many bytes as a slot. Zeroed at first.
struct PeerRegions {
  std::byte* of[max_peer_ranks] = {};
};
inline constexpr std::size_t peer_control_bytes = 64u << 10;
inline constexpr std::size_t peer_region_bytes =
    peer_control_bytes + 2 * max_peer_ranks * 2 * most_marked_bytes + 3 * most_slot_bytes;

/// One rank's side of a sum over ranks. All ranks launch the same sums in the same order.
struct PeerSum {
  PeerRegions regions;
  int rank = 0;
  int size = 2;                                 ///< 2..max_peer_ranks
  const volatile std::uint32_t* end = nullptr;  ///< mapped host memory: not 0 ends the wait
};

/// Whether launch_peer_sum takes these: whole words of 16 bytes. All ranks must come to the same,
/// so their tensors lie alike.
bool takes_peer_sum(const Tensor& partial, const Tensor& sum);

/// sum = the partials of all ranks, at most most_slot_bytes, widened to fp32 and added in the order
/// of tree_sum.hpp. Both f32, or the partials bf16 and the sum f32 or, rounded once, bf16. They may
/// be the same memory if their dtypes are equal. Can be captured in a graph.
cudaError_t launch_peer_sum(const PeerSum& call, const Tensor& partial, const Tensor& sum,
                            cudaStream_t stream);

/// sum = parts[0] + ... in the same order and dtypes; 1..max_peer_ranks parts of `dtype`, with as
/// many elements as `sum`, which may be one of them.
cudaError_t launch_tree_sum(std::span<const void* const> parts, DType dtype, const Tensor& sum,
                            cudaStream_t stream);

}  // namespace troupe
