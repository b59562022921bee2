// Data moved between ranks' memories without addition.
#include "parallel/collectives/peer/peer_words.cuh"

namespace troupe {
namespace {

using namespace peers;
using sums::is_aligned;

// ---- A few bytes of any kind: words of 4 bytes with the call as a mark, in turn in two halves.

struct Parts {
  int begin[max_peer_ranks];
  int count[max_peer_ranks];
};

__device__ __forceinline__ uint2* marked_words(const Call& call, int of, int from) {
  const std::size_t place = (call.epoch() % 2) * max_peer_ranks + static_cast<std::size_t>(from);
  return reinterpret_cast<uint2*>(call.region(of) + peer_control_bytes +
                                  place * 2 * max_gathered_bytes);
}

/// Writes word `i` of this rank's data where rank `to` looks for it.
__device__ __forceinline__ void put_marked(const Call& call, int to, int i, std::uint32_t value) {
  asm volatile(
      "st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(marked_words(call, to, call.rank()) + i),
      "r"(value), "r"(call.epoch())
      : "memory");
}

__device__ __forceinline__ std::uint32_t take_marked(Call& call, int from, int i) {
  uint2 found;
  do {
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(found.x), "=r"(found.y)
                 : "l"(marked_words(call, call.rank(), from) + i));
  } while (found.y != call.epoch() && !call.stops());
  return found.x;
}

__global__ void gather_marked(const __grid_constant__ PeerCall peers, Parts parts,
                              const std::uint32_t* part, std::uint32_t* all) {
  cuda::begin_early_kernel();
  Call call(peers);
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int own = call.rank();
  // A rank without data sends a word all the same: no rank may be two calls ahead of it.
  for (int i = first; i < max(parts.count[own], 1); i += stride) {
    const std::uint32_t value = i < parts.count[own] ? part[i] : 0;
    for (int to = 0; to < peers.size; ++to) {
      if (to != own) put_marked(call, to, i, value);
    }
    if (i < parts.count[own]) all[parts.begin[own] + i] = value;
  }
  call.count();
  for (int from = 0; from < peers.size; ++from) {
    if (from == own) continue;
    for (int i = first; i < max(parts.count[from], 1); i += stride) {
      const std::uint32_t value = take_marked(call, from, i);
      if (i < parts.count[from]) all[parts.begin[from] + i] = value;
    }
  }
}

// ---- Columns to rows.

struct Columns {
  std::int64_t rows = 0;   ///< of the matrix
  std::int64_t share = 0;  ///< rows of a rank, the last ones fewer or none
  std::int64_t begin = 0;  ///< begin of the piece within each share
  std::int64_t count = 0;  ///< rows of the piece of a share
  std::int64_t width = 0;  ///< words of this rank's part of a row
  std::int64_t whole = 0;  ///< words of a row
};

template <int ranks>
__global__ void __launch_bounds__(resident_threads)
    turn_columns(const __grid_constant__ PeerCall peers, Columns columns, const uint4* part,
                 uint4* whole) {
  cuda::begin_early_kernel();
  Call call(peers);
  const std::int64_t words = columns.count * columns.width;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  // Returns the rows of the piece that a rank has.
  const auto words_of = [&](int rank) {
    const std::int64_t before = rank * columns.share + columns.begin;
    return min(columns.count, max(columns.rows - before, std::int64_t{0})) * columns.width;
  };
  const auto place = [&](int of, int from, std::int64_t i) {
    return call.box(of) + from * words + i;
  };
  const auto push = [&](std::int64_t i) {
#pragma unroll
    for (int next = 1; next < ranks; ++next) {
      const int to = (call.rank() + next) % ranks;
      if (i >= words_of(to)) continue;
      put(place(to, call.rank(), i),
          part[(to * columns.share + columns.begin) * columns.width + i]);
    }
  };
  const std::int64_t own_words = words_of(call.rank());
  const auto write = [&](int from, std::int64_t i, uint4 value) {
    const std::int64_t column = from * columns.width + i % columns.width;
    if (column < columns.whole) {
      whole[(columns.begin + i / columns.width) * columns.whole + column] = value;
    }
  };
  const auto gather = [&](std::int64_t i) {
    if (i >= own_words) return;
    uint4* places[ranks];
    uint4 found[ranks];
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) {
      places[rank] = place(call.rank(), rank, i);
      if (rank != call.rank()) continue;
      found[rank] = part[(rank * columns.share + columns.begin) * columns.width + i];
    }
    take<ranks>(call, places, found);
#pragma unroll
    for (int rank = 0; rank < ranks; ++rank) write(rank, i, found[rank]);
  };
  // A rank that gets no rows waits all the same: no rank may be two calls ahead of the others.
  const int other = static_cast<int>(first);
  const bool meets = other < ranks && other != call.rank();
  if (meets) put_marked(call, other, 0, 0);
  push(first);
  push(first + stride);
  call.count();
  for (std::int64_t i = first; i < words; i += stride) {
    gather(i);
    push(i + 2 * stride);
  }
  if (meets) take_marked(call, other, 0);
}

}  // namespace

bool takes_peer_gather(const Tensor& part, const Tensor& all, std::span<const std::size_t> bytes) {
  return is_aligned(part.data(), 4) && is_aligned(all.data(), 4) &&
         std::ranges::all_of(
             bytes, [](std::size_t each) { return each % 4 == 0 && each <= max_gathered_bytes; });
}

cudaError_t launch_peer_gather(const PeerCall& call, const Tensor& part, const Tensor& all,
                               std::span<const std::size_t> bytes, cudaStream_t stream) {
  Parts parts{};
  int total = 0, most = 0;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    parts.begin[rank] = total;
    parts.count[rank] = static_cast<int>(bytes[rank] / 4);
    total += parts.count[rank];
    most = std::max(most, parts.count[rank]);
  }
  return cuda::launch_early(gather_marked, grid_of(most, 256), stream, call, parts,
                            static_cast<const std::uint32_t*>(part.data()),
                            static_cast<std::uint32_t*>(all.data()));
}

bool takes_peer_rows(const Tensor& part, const Tensor& whole) {
  return part.dtype() == DType::f32 && part[1] % 4 == 0 && whole[1] % 4 == 0 &&
         is_aligned(part.data(), 16) && is_aligned(whole.data(), 16);
}

cudaError_t launch_peer_rows(const PeerCall& call, const Tensor& part, const Tensor& whole,
                             cudaStream_t stream) {
  Columns columns{.rows = part[0],
                  .share = (part[0] + call.size - 1) / call.size,
                  .width = part[1] / 4,
                  .whole = whole[1] / 4};
  const std::int64_t most = box_words / call.size / columns.width;
  if (most == 0) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  for (; columns.begin < columns.share && error == cudaSuccess; columns.begin += most) {
    columns.count = std::min(most, columns.share - columns.begin);
    sums::with_ranks(call.size, [&](auto ranks) {
      if constexpr (ranks > 1) {
        error = cuda::launch_early(turn_columns<ranks>, grid_of(columns.count * columns.width, 256),
                                   stream, call, columns, static_cast<const uint4*>(part.data()),
                                   static_cast<uint4*>(whole.data()));
      }
    });
  }
  return error;
}

}  // namespace troupe
