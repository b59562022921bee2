// How kernels of several ranks write into each other's memory and detect that a word has arrived.
//
// A word of a box that is not written yet has all bits set. A sent word never has all bits set in
// any of its four parts: that would be a NaN, for which another NaN is sent. So a word needs no
// flag and no fence: its reader polls until all four parts are there, and sets all bits again.
// Calls alternate between two boxes. A rank that has ended call n + 1 has words of it that every
// rank's call n + 1 contributed to, and so knows that call n has ended everywhere; then its words
// of call n + 2 may go to call n's box.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/collectives/peer/sum_words.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe::peers {

/// Threads per multiprocessor that these kernels' registers allow.
constexpr int resident_threads = 1024;
/// Polls of a word between two polls of the host's word, which is across the bus.
constexpr int looks_at_once = 2048;

/// The beginning of a region.
struct Control {
  std::uint32_t epoch;  ///< calls begun; this rank's own count
  std::uint32_t begun;  ///< blocks of the running call that have read it
};

/// A rank's side of one call, in one thread. Constructed when the earlier kernels are done.
class Call {
 public:
  __device__ explicit Call(const PeerCall& call) : call_(call) {
    const std::uint32_t next = *const_cast<const volatile std::uint32_t*>(&control()->epoch) + 1;
    epoch_ = next == 0 ? 2 : next;  // 0 marks no call, and the epoch before it was odd
  }

  __device__ int rank() const { return call_.rank; }
  __device__ std::uint32_t epoch() const { return epoch_; }
  __device__ std::byte* region(int rank) const { return call_.regions.of[rank]; }
  __device__ uint4* box(int rank) const {
    return reinterpret_cast<uint4*>(region(rank) + peer_cleared_bytes +
                                    (epoch_ % 2) * peer_box_bytes);
  }

  /// Advances the count for the next call. All threads of all blocks call it once.
  __device__ void count() const {
    __syncthreads();  // all threads of the block have read the epoch
    if (threadIdx.x != 0) return;
    if (atomicAdd(&control()->begun, 1) + 1 != gridDim.x) return;
    control()->begun = 0;
    control()->epoch = epoch_;
  }

  /// True once the host has ended the call; stays true.
  __device__ bool stops() {
    if (!ended_ && ++looks_ % looks_at_once == 0) ended_ = *call_.end != 0;
    return ended_;
  }

 private:
  __device__ Control* control() const {
    return reinterpret_cast<Control*>(call_.regions.of[call_.rank]);
  }

  const PeerCall& call_;
  std::uint32_t epoch_;
  int looks_ = 0;
  bool ended_ = false;
};

__device__ __forceinline__ void put(uint4* to, uint4 word) {
  constexpr std::uint32_t most = ~0U - 1;
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(min(word.x, most)), "r"(min(word.y, most)), "r"(min(word.z, most)),
               "r"(min(word.w, most))
               : "memory");
}

__device__ __forceinline__ uint4 look_at(const uint4* from) {
  uint4 found;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(from));
  return found;
}

__device__ __forceinline__ bool is_there(uint4 word) {
  return word.x != ~0U && word.y != ~0U && word.z != ~0U && word.w != ~0U;
}

__device__ __forceinline__ void clear(uint4* word) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(word), "r"(~0U)
               : "memory");
}

/// Takes a word that another rank sends; results of an ended call are void.
__device__ __forceinline__ uint4 take_one(Call& call, uint4* from) {
  uint4 found = look_at(from);
  while (!is_there(found) && !call.stops()) found = look_at(from);
  clear(from);
  return found;
}

/// The same for from[r] of each rank r but this one, all at once.
template <int ranks>
__device__ __forceinline__ void take(Call& call, uint4* const (&from)[ranks],
                                     uint4 (&found)[ranks]) {
#pragma unroll
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != call.rank()) found[rank] = look_at(from[rank]);
  }
#pragma unroll
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == call.rank()) continue;
    while (!is_there(found[rank]) && !call.stops()) found[rank] = look_at(from[rank]);
    clear(from[rank]);
  }
}

/// Threads and blocks for `words`, `per_block` of them per block at a time.
inline cuda::Grid grid_of(std::int64_t words, std::int64_t per_block) {
  const auto block_threads = static_cast<unsigned>((per_block + 31) / 32 * 32);
  const std::int64_t most =
      cuda::multiprocessors_to_take() * std::max<std::int64_t>(resident_threads / block_threads, 1);
  // All blocks make the same number of rounds.
  const std::int64_t items = std::max<std::int64_t>((words + per_block - 1) / per_block, 1);
  const std::int64_t rounds = (items + most - 1) / most;
  return {dim3(static_cast<unsigned>((items + rounds - 1) / rounds)), block_threads};
}

constexpr std::int64_t box_words = peer_box_bytes / 16;

}  // namespace troupe::peers
