// Sums over ranks through their boxes (peer_words.cuh): each rank adds everything, or its share. A
// Finish handles each summed word: its prepare() runs before the earlier kernels are done, fetch()
// before a word's partial sums have arrived, and finish() on all threads of a block at once, each
// with its sum.
#pragma once

#include "parallel/collectives/peer/peer_words.cuh"

namespace troupe::peers {

using namespace sums;

/// Words of 16 bytes of the partial sums. A block handles `per_block` at a time, one per thread.
struct Extent {
  std::int64_t words = 0;      ///< of the message, or of its piece
  std::int64_t per_block = 0;  ///< at most the threads of a block
};

/// Elements of the partial sums' dtype in a word, and thus sums per word.
template <class T>
constexpr int word_elements = 16 / sizeof(T);

template <class T, class Out>
using SumWord = Words<Out, word_elements<T>>;

/// Every rank sends all its terms to all others.
template <int ranks, class T, class Out, class Finish>
__global__ void __launch_bounds__(resident_threads)
    sum_whole(const __grid_constant__ PeerCall peers, Extent extent, const T* partial, Out* sum,
              Finish finish) {
  cuda::let_next_kernel_start();
  finish.prepare();
  cuda::wait_for_kernels_before();
  Call call(peers);
  const auto* const own = reinterpret_cast<const uint4*>(partial);
  const bool takes_part = threadIdx.x < extent.per_block;
  const std::int64_t stride = gridDim.x * extent.per_block;
  const auto push = [&](std::int64_t word) {
    if (!takes_part || word >= extent.words) return;
    const uint4 value = own[word];
#pragma unroll
    for (int next = 1; next < ranks; ++next) {
      const int to = (call.rank() + next) % ranks;
      put(call.box(to) + call.rank() * extent.words + word, value);
    }
  };
  const auto reduce = [&](std::int64_t word) {
    const bool there = takes_part && word < extent.words;
    SumWord<T, Out> added{};
    finish.fetch(word, there);
    if (there) {
      uint4* places[ranks];
      uint4 found[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        places[rank] = call.box(call.rank()) + rank * extent.words + word;
        if (rank == call.rank()) found[rank] = own[word];
      }
      take<ranks>(call, places, found);
      Words<T, word_elements<T>> parts[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        parts[rank] = *reinterpret_cast<const Words<T, word_elements<T>>*>(&found[rank]);
      }
      add_words<ranks, T, Out, word_elements<T>>(parts, added);
    }
    finish.finish(added, word, there);
    if (there) reinterpret_cast<SumWord<T, Out>*>(sum)[word] = added;
  };
  const std::int64_t first = blockIdx.x * extent.per_block;
  push(first + threadIdx.x);
  push(first + stride + threadIdx.x);
  call.count();
  for (std::int64_t begin = first; begin < extent.words; begin += stride) {
    reduce(begin + threadIdx.x);
    push(begin + 2 * stride + threadIdx.x);
  }
}

/// A message in equal shares (the last may have less or nothing), or a piece of each share.
struct Shares {
  std::int64_t words = 0;  ///< of the whole message
  std::int64_t share = 0;  ///< words of a share
  std::int64_t begin = 0;  ///< begin of the piece within each share
  std::int64_t count = 0;  ///< words of the piece of a share
  std::int64_t per_block = 0;
};

/// Every rank sends each other rank its terms of that rank's share, adds what it receives for its
/// own, and sends the sums to all. `sum` is the whole message's.
template <int ranks, class T, class Out, class Finish>
__global__ void __launch_bounds__(resident_threads)
    sum_shares(const __grid_constant__ PeerCall peers, Shares shares, const T* partial, Out* sum,
               Finish finish) {
  constexpr int words_of_sum = sizeof(SumWord<T, Out>) / 16;
  cuda::let_next_kernel_start();
  finish.prepare();
  cuda::wait_for_kernels_before();
  Call call(peers);
  const auto* const own = reinterpret_cast<const uint4*>(partial);
  const std::int64_t stride = gridDim.x * shares.per_block;
  const bool takes_part = threadIdx.x < shares.per_block;
  // Returns where word i of a rank's piece is in the message; the last shares may lack it.
  const auto place = [&](int rank, std::int64_t i) {
    return rank * shares.share + shares.begin + i;
  };
  const auto has = [&](int rank, std::int64_t i) {
    return takes_part && i < shares.count && place(rank, i) < shares.words;
  };
  // Each box holds partial sums by their sender, then sums by theirs.
  const auto part_box = [&](int of, int from, std::int64_t i) {
    return call.box(of) + from * shares.count + i;
  };
  const auto sum_box = [&](int of, int from, std::int64_t i) {
    return call.box(of) + (ranks + from * words_of_sum) * shares.count + i * words_of_sum;
  };
  const auto push = [&](std::int64_t i) {
#pragma unroll
    for (int next = 1; next < ranks; ++next) {
      const int to = (call.rank() + next) % ranks;
      if (has(to, i)) put(part_box(to, call.rank(), i), own[place(to, i)]);
    }
  };
  const auto reduce = [&](std::int64_t i) {
    const bool there = has(call.rank(), i);
    SumWord<T, Out> added{};
    finish.fetch(shares.begin + i, there);
    if (there) {
      uint4* places[ranks];
      uint4 found[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        places[rank] = part_box(call.rank(), rank, i);
        if (rank == call.rank()) found[rank] = own[place(rank, i)];
      }
      take<ranks>(call, places, found);
      Words<T, word_elements<T>> parts[ranks];
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        parts[rank] = *reinterpret_cast<const Words<T, word_elements<T>>*>(&found[rank]);
      }
      add_words<ranks, T, Out, word_elements<T>>(parts, added);
    }
    finish.finish(added, shares.begin + i, there);
    if (!there) return;
    const auto* const words = reinterpret_cast<const uint4*>(&added);
#pragma unroll
    for (int next = 1; next < ranks; ++next) {
      const int to = (call.rank() + next) % ranks;
#pragma unroll
      for (int w = 0; w < words_of_sum; ++w) put(sum_box(to, call.rank(), i) + w, words[w]);
    }
    reinterpret_cast<SumWord<T, Out>*>(sum)[place(call.rank(), i)] = added;
  };
  const auto gather = [&](std::int64_t i) {
#pragma unroll
    for (int w = 0; w < words_of_sum; ++w) {
      uint4* places[ranks];
      uint4 found[ranks];
      bool all = true;
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        places[rank] = sum_box(call.rank(), rank, i) + w;
        all = all && has(rank, i);
      }
      const auto write = [&](int rank) {
        reinterpret_cast<uint4*>(sum)[place(rank, i) * words_of_sum + w] = found[rank];
      };
      if (all) {
        take<ranks>(call, places, found);
#pragma unroll
        for (int rank = 0; rank < ranks; ++rank) {
          if (rank != call.rank()) write(rank);
        }
        continue;
      }
#pragma unroll
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == call.rank() || !has(rank, i)) continue;
        found[rank] = take_one(call, places[rank]);
        write(rank);
      }
    }
  };
  // Each thread sends the next words before it waits, and waits last for what it has sent.
  const std::int64_t first = blockIdx.x * shares.per_block;
  push(first + threadIdx.x);
  push(first + stride + threadIdx.x);
  call.count();
  std::int64_t begin = first;
  for (; begin < shares.count; begin += stride) {
    reduce(begin + threadIdx.x);
    push(begin + 2 * stride + threadIdx.x);
    if (begin > first) gather(begin - stride + threadIdx.x);
  }
  if (begin > first) gather(begin - stride + threadIdx.x);
}

}  // namespace troupe::peers
