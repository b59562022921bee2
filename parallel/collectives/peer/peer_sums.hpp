#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "parallel/collectives/collectives.hpp"
#include "parallel/device/tensor.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// The most ranks in one call.
inline constexpr int max_peer_ranks = 8;

/// Partial sums of three and more ranks up to this size go to every rank, which adds all of them;
/// of larger ones each rank adds a share and sends its sums to the others.
inline constexpr std::size_t max_whole_bytes = 256u << 10;
/// Two ranks send as many bytes either way; with a norm, shares are faster from here on.
inline constexpr std::size_t max_whole_bytes_of_two = 2u << 20;
/// The most bytes of one rank that launch_peer_gather takes.
inline constexpr std::size_t max_gathered_bytes = 32u << 10;

/// Each rank's region, which the others write to: its own count of calls, the tagged words of small
/// gathers, and two boxes, used by calls in turn. The first `peer_cleared_bytes` are zeroed at
/// first, and all bits of the boxes are set.
struct PeerRegions {
  std::byte* of[max_peer_ranks] = {};
};
inline constexpr std::size_t peer_control_bytes = 4u << 10;
inline constexpr std::size_t peer_cleared_bytes =
    peer_control_bytes + 2 * max_peer_ranks * 2 * max_gathered_bytes;
inline constexpr std::size_t peer_box_bytes = 64u << 20;
inline constexpr std::size_t peer_region_bytes = peer_cleared_bytes + 2 * peer_box_bytes;

/// One rank's side of a call. All ranks launch the same calls in the same order, with tensors of
/// the same alignment. All calls can be captured in graphs.
struct PeerCall {
  PeerRegions regions;
  int rank = 0;
  int size = 2;                                 ///< 2..max_peer_ranks
  const volatile std::uint32_t* end = nullptr;  ///< mapped host memory: a value other than 0 ends
                                                ///< all waits
};

/// True if launch_peer_sum takes these: whole words of 16 bytes.
bool takes_peer_sum(const Tensor& partial, const Tensor& sum);
/// sum = the partials of all ranks, widened to fp32 and added in the order of tree_sum.hpp. Both
/// f32, or the partials bf16 and the sum f32 or, rounded once, bf16. They may be the same memory if
/// their dtypes are equal.
cudaError_t launch_peer_sum(const PeerCall& call, const Tensor& partial, const Tensor& sum,
                            cudaStream_t stream);

/// True if launch_peer_norm takes rows of this width: bf16, and a row fits a block.
bool takes_peer_norm(DType dtype, std::int64_t width);
/// Collectives::all_reduce_rms_norm.
cudaError_t launch_peer_norm(const PeerCall& call, const AllReduceRmsNorm& sum,
                             cudaStream_t stream);

/// Rows of partial sums of each rank, in this rank's memory.
struct RankRows {
  const std::byte* of[max_peer_ranks] = {};
};
/// Adds the sum of `rows` of `ranks` ranks to the residual stream and normalises it, like
/// launch_peer_norm; `share` says which rows of `sum` they are. `sum.partial` is not read, and
/// sum.residual has the rows of `share` alone.
cudaError_t launch_norm_of_rows(const RankRows& rows, int ranks, const AllReduceRmsNorm& sum,
                                Slice share, cudaStream_t stream);
/// Loads the kernel of launch_norm_of_rows on this thread's device, if not yet loaded.
cudaError_t load_norm_of_rows(int ranks);

/// True if launch_peer_gather takes parts of these sizes: few bytes, and whole words of 4.
bool takes_peer_gather(const Tensor& part, const Tensor& all, std::span<const std::size_t> bytes);
/// Concatenates the parts of all ranks into `all`, of bytes[r] each. `part` may be its slice of
/// `all`.
cudaError_t launch_peer_gather(const PeerCall& call, const Tensor& part, const Tensor& all,
                               std::span<const std::size_t> bytes, cudaStream_t stream);

/// True if launch_peer_rows takes these: whole words of 16 bytes.
bool takes_peer_rows(const Tensor& part, const Tensor& whole);
/// Collectives::columns_to_rows. A NaN may become another NaN.
cudaError_t launch_peer_rows(const PeerCall& call, const Tensor& part, const Tensor& whole,
                             cudaStream_t stream);

/// sum = parts[0] + ... in the same order and dtypes, or f32 parts to a bf16 sum; 1..max_peer_ranks
/// parts of `dtype`, with as many elements as `sum`, which may be one of them.
cudaError_t launch_tree_sum(std::span<const void* const> parts, DType dtype, const Tensor& sum,
                            cudaStream_t stream);

/// Number of groups of max_peer_ranks, the last perhaps smaller, that make up so many terms.
constexpr std::size_t peer_groups(std::size_t terms) {
  return (terms + max_peer_ranks - 1) / max_peer_ranks;
}
inline constexpr int max_summed_ranks = max_peer_ranks * max_peer_ranks;
/// The same for 1..max_summed_ranks terms. `room` [peer_groups(terms), elements of `sum`] is for
/// more than max_peer_ranks, whose groups of max_peer_ranks are summed first: in the order of
/// tree_sum.hpp each of them is a subtree.
cudaError_t launch_sum_of_terms(std::span<const void* const> terms, DType dtype, const Tensor& sum,
                                float* room, cudaStream_t stream);

}  // namespace troupe
