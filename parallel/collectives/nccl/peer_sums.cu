#include "parallel/collectives/nccl/sum_words.cuh"

namespace troupe {
namespace {

using namespace sums;

/// Fewer than a GPU has multiprocessors, so that all blocks of a sum run at once.
constexpr int most_blocks = 128;
/// Looks at a mark between two looks at the host's word, which is across the bus.
constexpr int looks_at_once = 2048;

/// The beginning of a region.
struct Control {
  std::uint32_t epoch;   ///< sums that are done, this rank's own count
  std::uint32_t blocks;  ///< of the sum that runs: how many are through
  /// By rank: the sum whose slots, and whose share's sums, a block has written.
  std::uint32_t arrived[2][most_blocks][max_peer_ranks];
};
static_assert(sizeof(Control) <= peer_control_bytes);

__device__ __forceinline__ std::uint32_t this_epoch(const Control* control) {
  const std::uint32_t next = *static_cast<const volatile std::uint32_t*>(&control->epoch) + 1;
  return next == 0 ? 2 : next;  // 0 marks nothing, and an odd one was before it
}

/// The last block to be through makes this sum the last one that is done.
__device__ __forceinline__ void finish(Control* control, std::uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&control->blocks, 1) + 1 != gridDim.x) return;
  control->blocks = 0;
  control->epoch = epoch;
}

// ---- Marked words: 4 bytes and a mark, so that nobody waits for a word to be there before the
// mark is set. The rank writes into the others' memory and reads its own alone.

__device__ __forceinline__ void put_marked(uint4* to, uint2 word, std::uint32_t mark) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x),
               "r"(mark), "r"(word.y), "r"(mark)
               : "memory");
}

__device__ __forceinline__ uint4 look_at(const uint4* from) {
  uint4 found;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(from)
               : "memory");
  return found;
}

/// False if the host has ended it.
__device__ __forceinline__ bool take_marked(const uint4* from, std::uint32_t mark,
                                            const volatile std::uint32_t* end, uint2& word) {
  for (int looks = 1;; ++looks) {
    const uint4 found = look_at(from);
    if (found.y == mark && found.w == mark) {
      word = {found.x, found.z};
      return true;
    }
    if (looks % looks_at_once == 0 && *end != 0) return false;
  }
}

/// Where rank `from` puts its marked words of a sum.
__device__ __forceinline__ uint4* marked_words(std::byte* region, std::uint32_t epoch, int from) {
  const std::size_t place = (epoch % 2) * max_peer_ranks + static_cast<std::size_t>(from);
  return reinterpret_cast<uint4*>(region + peer_control_bytes + place * 2 * most_marked_bytes);
}

/// A region's two halves are used in turn: who has all words of sum n knows that the others are
/// done with sum n - 1, and so with the half that sum n + 1 overwrites.
template <int ranks, class T, class Out>
__global__ void __launch_bounds__(threads)
    sum_marked(PeerSum call, const T* partial, std::int64_t words, Out* sum) {
  constexpr int each = 8 / sizeof(T);
  using In = Words<T, each>;
  auto* const control = reinterpret_cast<Control*>(call.regions.of[call.rank]);
  const std::uint32_t epoch = this_epoch(control);
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < words; i += stride) {
    In parts[ranks];
    const In own = reinterpret_cast<const In*>(partial)[i];
    const auto own_word = *reinterpret_cast<const uint2*>(&own);
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != call.rank) {
        put_marked(marked_words(call.regions.of[rank], epoch, call.rank) + i, own_word, epoch);
      }
    }
    bool there = true;
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) {
      uint2 word = own_word;
      if (rank != call.rank) {
        there = there && take_marked(marked_words(call.regions.of[call.rank], epoch, rank) + i,
                                     epoch, call.end, word);
      }
      parts[rank] = *reinterpret_cast<const In*>(&word);
    }
    if (!there) break;
    Words<Out, each> added;
    add_words<ranks, T, Out, each>(parts, added);
    reinterpret_cast<Words<Out, each>*>(sum)[i] = added;
  }
  finish(control, epoch);
}

// ---- Slots: each block puts its words into the rank's own slot, tells the same block of the other
// ranks, and reads theirs.

__device__ __forceinline__ void tell(std::uint32_t* arrived, std::uint32_t epoch) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(arrived), "r"(epoch) : "memory");
}

__device__ __forceinline__ std::uint32_t told(const std::uint32_t* arrived) {
  std::uint32_t found;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(arrived) : "memory");
  return found;
}

__device__ __forceinline__ std::byte* slot_of(std::byte* region, std::uint32_t epoch) {
  return region + peer_control_bytes + 2 * max_peer_ranks * 2 * most_marked_bytes +
         (epoch % 2) * most_slot_bytes;
}

/// Where a rank puts the sums of its share: the others are done with those of the last sum, for
/// they have come to this one.
__device__ __forceinline__ std::byte* share_of(std::byte* region) {
  return region + peer_control_bytes + 2 * max_peer_ranks * 2 * most_marked_bytes +
         2 * most_slot_bytes;
}

/// A word of another rank that is there. Unlike look_at, several can be under way.
__device__ __forceinline__ uint4 read(const uint4* from) {
  uint4 found;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(from));
  return found;
}

/// Thread r waits for rank r. False on all threads if the host has ended it.
template <int ranks>
__device__ __forceinline__ bool meet(const PeerSum& call, Control* control, std::uint32_t epoch,
                                     int meeting) {
  __syncthreads();
  bool there = true;
  if (threadIdx.x < ranks && static_cast<int>(threadIdx.x) != call.rank) {
    const auto rank = threadIdx.x;
    __threadfence_system();
    tell(
        &reinterpret_cast<Control*>(call.regions.of[rank])->arrived[meeting][blockIdx.x][call.rank],
        epoch);
    const std::uint32_t* const arrived = &control->arrived[meeting][blockIdx.x][rank];
    // Who is ahead may be in the next sum already.
    for (int looks = 1; static_cast<std::int32_t>(told(arrived) - epoch) < 0; ++looks) {
      if (looks % looks_at_once == 0 && *call.end != 0) {
        there = false;
        break;
      }
    }
  }
  return __syncthreads_and(there ? 1 : 0) != 0;
}

/// Copies this block's words, several at once.
template <class Word>
__device__ __forceinline__ void put_words(const Word* from, std::int64_t words, Word* to) {
  constexpr int batch = 8;
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  const std::int64_t first = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  for (std::int64_t i = first; i < words; i += batch * stride) {
    Word found[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      if (i + b * stride < words) found[b] = from[i + b * stride];
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      if (i + b * stride < words) to[i + b * stride] = found[b];
    }
  }
}

/// Adds this block's words of [begin, end) of all slots: to sum[begin ..], and to `share` from its
/// beginning on, if there is one.
template <int ranks, class T, class Out>
__device__ __forceinline__ void add_slots(const PeerSum& call, std::uint32_t epoch,
                                          std::int64_t begin, std::int64_t end, Out* sum,
                                          Out* share) {
  constexpr int each = 16 / sizeof(T);
  constexpr int batch = ranks <= 2 ? 8 : ranks <= 4 ? 4 : 2;  // words under way from each rank
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  const std::int64_t first = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const uint4* slots[ranks];
#pragma unroll
  for (int rank = 0; rank < ranks; ++rank) {
    slots[rank] = reinterpret_cast<const uint4*>(slot_of(call.regions.of[rank], epoch)) + begin;
  }
  auto* const sums = reinterpret_cast<Words<Out, each>*>(sum) + begin;
  auto* const shared = reinterpret_cast<Words<Out, each>*>(share);
  const std::int64_t words = end - begin;
  for (std::int64_t i = first; i < words; i += batch * stride) {
    uint4 found[batch][ranks];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        if (i + b * stride < words) found[b][rank] = read(slots[rank] + i + b * stride);
      }
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      if (i + b * stride >= words) continue;
      Words<T, each> parts[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        parts[rank] = *reinterpret_cast<const Words<T, each>*>(&found[b][rank]);
      }
      Words<Out, each> added;
      add_words<ranks, T, Out, each>(parts, added);
      sums[i + b * stride] = added;
      if (share != nullptr) shared[i + b * stride] = added;
    }
  }
}

/// Reads this block's words of the sums of another rank's share [begin, end).
template <class T, class Out>
__device__ __forceinline__ void read_share(std::byte* region, std::int64_t begin, std::int64_t end,
                                           Out* sum) {
  constexpr int each = 16 / sizeof(T);                 // elements of a slot's word
  constexpr int words_each = each * sizeof(Out) / 16;  // words of 16 bytes that they are summed to
  constexpr int batch = 8 / words_each;
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  const std::int64_t first = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const auto* const from = reinterpret_cast<const uint4*>(share_of(region));
  auto* const to = reinterpret_cast<uint4*>(sum) + begin * words_each;
  const std::int64_t words = end - begin;
  for (std::int64_t i = first; i < words; i += batch * stride) {
    uint4 found[batch][words_each];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
#pragma unroll
      for (int w = 0; w < words_each; ++w) {
        if (i + b * stride < words) found[b][w] = read(from + (i + b * stride) * words_each + w);
      }
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
#pragma unroll
      for (int w = 0; w < words_each; ++w) {
        if (i + b * stride < words) to[(i + b * stride) * words_each + w] = found[b][w];
      }
    }
  }
}

/// In one go every rank adds everything; in shares each adds its own and reads the others'. A block
/// reads what the same block of another rank has written, so blocks meet, not kernels.
template <int ranks, class T, class Out, bool in_shares>
__global__ void __launch_bounds__(threads)
    sum_slots(PeerSum call, const T* partial, std::int64_t words, Out* sum) {
  using In = Words<T, 16 / sizeof(T)>;
  auto* const control = reinterpret_cast<Control*>(call.regions.of[call.rank]);
  const std::uint32_t epoch = this_epoch(control);
  const std::int64_t share = in_shares ? (words + ranks - 1) / ranks : words;
  auto* const own_slot = reinterpret_cast<In*>(slot_of(call.regions.of[call.rank], epoch));
  for (std::int64_t begin = 0; begin < words; begin += share) {
    const std::int64_t end = min(begin + share, words);
    put_words(reinterpret_cast<const In*>(partial) + begin, end - begin, own_slot + begin);
  }
  bool there = meet<ranks>(call, control, epoch, 0);
  if (there && !in_shares) {
    add_slots<ranks, T, Out>(call, epoch, 0, words, sum, nullptr);
  }
  if (there && in_shares) {
    const auto begin_of = [&](int rank) { return min(rank * share, words); };
    auto* const own_share = reinterpret_cast<Out*>(share_of(call.regions.of[call.rank]));
    add_slots<ranks, T, Out>(call, epoch, begin_of(call.rank), begin_of(call.rank + 1), sum,
                             own_share);
    there = meet<ranks>(call, control, epoch, 1);
    for (int next = 1; there && next < ranks; ++next) {
      const int rank = (call.rank + next) % ranks;
      read_share<T, Out>(call.regions.of[rank], begin_of(rank), begin_of(rank + 1), sum);
    }
  }
  finish(control, epoch);
}

}  // namespace

bool takes_peer_sum(const Tensor& partial, const Tensor& sum) {
  // A word of 16 bytes of bf16 becomes 32 bytes of f32.
  return partial.bytes() % 16 == 0 && is_aligned(partial.data(), 16) && is_aligned(sum.data(), 32);
}

cudaError_t launch_peer_sum(const PeerSum& call, const Tensor& partial, const Tensor& sum,
                            cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(partial.bytes());
  const bool marked = partial.bytes() <= most_marked_bytes;
  with_types(call.size, partial.dtype(), sum.dtype(), [&](auto ranks, auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    if constexpr (ranks > 1) {
      const auto* from = static_cast<const T*>(partial.data());
      auto* to = static_cast<Out*>(sum.data());
      if (marked) {
        const std::int64_t words = bytes / 8;
        sum_marked<ranks, T, Out>
            <<<blocks_of(words, most_blocks), threads, 0, stream>>>(call, from, words, to);
      } else {
        const std::int64_t words = bytes / 16;
        const int blocks = blocks_of(words, most_blocks);
        if (ranks > 2 && partial.bytes() > most_whole_bytes) {
          sum_slots<ranks, T, Out, true><<<blocks, threads, 0, stream>>>(call, from, words, to);
        } else {
          sum_slots<ranks, T, Out, false><<<blocks, threads, 0, stream>>>(call, from, words, to);
        }
      }
    }
  });
  return cudaPeekAtLastError();
}

}  // namespace troupe
