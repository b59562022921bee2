// Dispatch and combine of rows, written into each other's memory.
//
// A call has its own count in each region, and words that say which rank has reached which call.
// Each call reuses the last one's places for rows: a rank that has its results back knows that
// every rank is done with the rows it was sent, and a rank that has new rows knows that their owner
// is done with the results it got back.
#include <algorithm>

#include "parallel/collectives/peer/peer_rows.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

using namespace cuda;

constexpr int warp = 32;
constexpr int threads = 256, warps = threads / warp;
constexpr int max_dispatch_blocks = 1024;
constexpr int max_top_k = warp;
constexpr std::uint32_t codes_bit = 1U << 31;
/// Polls of a word between two polls of the host's word, which is across the bus.
constexpr int looks_at_once = 2048;
constexpr int words_at_once = 4;  // of 16 bytes, that a thread has under way from one row
constexpr int part_words = words_at_once * warp;
constexpr int sums_at_once = 2;  // of the words returned by each rank
constexpr int sums_words = sums_at_once * warp;

/// The beginning of a region.
struct Control {
  std::uint32_t epoch;                         ///< exchanges begun; this rank's own count
  std::uint32_t sent;                          ///< blocks of a dispatch that are done
  std::uint32_t added;                         ///< blocks of a combine that have sent everything
  std::int32_t filled[max_peer_ranks];         ///< rows received from each rank
  unsigned long long arrived[max_peer_ranks];  ///< from each rank: its exchange, then its rows,
                                               ///< with codes_bit if they are codes
  std::uint32_t returned[max_peer_ranks];      ///< from each rank: the last exchange whose results
                                               ///< it has sent completely
};
static_assert(sizeof(Control) <= peer_rows_control_bytes);

/// A region's tensors.
struct Region {
  Control* control;
  std::int32_t* ids;
  float* weights;
  float* scales;
  uint4* rows;
  uint4* returned;
};

__device__ __forceinline__ Region region_of(const PeerRows& exchange, const PeerRowsRegion& places,
                                            int rank) {
  std::byte* const begin = exchange.call.regions.of[rank];
  return {reinterpret_cast<Control*>(begin),
          reinterpret_cast<std::int32_t*>(begin + places.ids),
          reinterpret_cast<float*>(begin + places.weights),
          reinterpret_cast<float*>(begin + places.scales),
          reinterpret_cast<uint4*>(begin + places.rows),
          reinterpret_cast<uint4*>(begin + places.returned)};
}

__device__ __forceinline__ void tell(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ void tell(unsigned long long* word, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint32_t told(const std::uint32_t* word) {
  std::uint32_t found;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(word) : "memory");
  return found;
}
__device__ __forceinline__ unsigned long long told(const unsigned long long* word) {
  unsigned long long found;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(found) : "l"(word) : "memory");
  return found;
}
/// Reads a word of this rank's memory that another rank has written while this kernel ran.
__device__ __forceinline__ uint4 read(const uint4* from) {
  uint4 found;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(from));
  return found;
}

/// True in the last block to call this; all threads call it. The last block then sees what the
/// others wrote, and so does any rank that it notifies afterwards.
__device__ __forceinline__ bool is_last_block(std::uint32_t* through) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    last = atomicAdd(through, 1) + 1 == gridDim.x;
    __threadfence_system();
    if (last) *through = 0;
  }
  __syncthreads();
  return last;
}

/// One bit for each rank that has an expert of the row; choice number `lane` of the row is `id`.
__device__ __forceinline__ std::uint32_t ranks_of(int id, bool there, std::int64_t local_experts) {
  const std::uint32_t own = there ? 1U << (id / static_cast<int>(local_experts)) : 0;
  return __reduce_or_sync(~0U, own);
}

/// What a rank dispatches.
struct SentRows {
  const uint4* x;       ///< [rows, words]
  const float* scales;  ///< [rows], of codes; else null
  const std::int32_t* ids;
  const float* weights;
  int rows;
  int words;  ///< of 16 bytes in a row
  bool are_codes;
};

/// Sends rows, one per warp. The last block notifies the other ranks and waits for them.
__global__ void __launch_bounds__(threads)
    send_rows(PeerRows exchange, PeerRowsRegion places, SentRows sent) {
  begin_early_kernel();
  const PeerCall& call = exchange.call;
  const DeviceExpertExchangeLayout& layout = exchange.layout;
  const int top_k = static_cast<int>(layout.top_k), words = sent.words;
  const Region own = region_of(exchange, places, call.rank);
  const std::uint32_t epoch = *const_cast<volatile std::uint32_t*>(&own.control->epoch) + 1;
  const int lane = threadIdx.x % warp;
  for (int row = blockIdx.x * warps + threadIdx.x / warp; row < sent.rows;
       row += gridDim.x * warps) {
    const std::int64_t place = call.rank * layout.max_rows + row;
    const bool there = lane < top_k;
    const int id = there ? sent.ids[std::int64_t{row} * top_k + lane] : 0;
    const float weight = there ? sent.weights[std::int64_t{row} * top_k + lane] : 0.0F;
    const float scale = sent.scales != nullptr ? sent.scales[row] : 0.0F;
    const std::uint32_t wanted = ranks_of(id, there, layout.local_experts);
    for (int rank = 0; rank < call.size; ++rank) {
      const Region to = region_of(exchange, places, rank);
      if (there) {
        to.ids[place * top_k + lane] = id;
        to.weights[place * top_k + lane] = weight;
      }
      if (lane == 0 && sent.scales != nullptr) to.scales[place] = scale;
    }
    const uint4* const from = sent.x + std::int64_t{row} * words;
    for (int word = lane; word < words; word += words_at_once * warp) {
      uint4 found[words_at_once];
#pragma unroll
      for (int i = 0; i < words_at_once; ++i) {
        if (word + i * warp < words) found[i] = from[word + i * warp];
      }
      for (int rank = 0; rank < call.size; ++rank) {
        if ((wanted >> rank & 1U) == 0) continue;
        uint4* const to = region_of(exchange, places, rank).rows + place * words;
#pragma unroll
        for (int i = 0; i < words_at_once; ++i) {
          if (word + i * warp < words) to[word + i * warp] = found[i];
        }
      }
    }
  }
  if (!is_last_block(&own.control->sent)) return;
  const int rank = threadIdx.x;
  if (rank == 0) own.control->epoch = epoch;
  if (rank >= call.size) return;
  const unsigned long long mark = static_cast<unsigned long long>(epoch) << 32;
  const std::uint32_t kind = sent.are_codes ? codes_bit : 0;
  tell(&region_of(exchange, places, rank).control->arrived[call.rank],
       mark | kind | static_cast<std::uint32_t>(sent.rows));
  unsigned long long found = 0;
  for (int looks = 1; (found = told(&own.control->arrived[rank])) >> 32 != epoch; ++looks) {
    if (looks % looks_at_once == 0 && *call.end != 0) {
      found = kind;
      break;
    }
  }
  // A rank that sends other rows than this one takes would be misread: better no answers at all.
  if ((static_cast<std::uint32_t>(found) & codes_bit) != kind) __trap();
  own.control->filled[rank] = static_cast<std::int32_t>(found & ~codes_bit);
}

struct alignas(16) EightNumbers {
  bf16 of[8];
};

__device__ __forceinline__ void add_weighted(uint4 word, float weight, bool first,
                                             float (&sums)[8]) {
  const auto numbers = *reinterpret_cast<const EightNumbers*>(&word);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float value = __bfloat162float(numbers.of[i]);
    sums[i] = first ? value * weight : fmaf(value, weight, sums[i]);
  }
}

/// Adds the results of this rank's experts for the row at `place`, words [begin, begin +
/// part_words), and writes the sum `to` its owner; by a warp.
__device__ __forceinline__ void return_part(const Region& own, const uint4* results,
                                            const DeviceExpertExchangeLayout& layout, int rank,
                                            std::int64_t place, int begin, uint4* to) {
  const int lane = threadIdx.x % warp, top_k = static_cast<int>(layout.top_k);
  const int words = static_cast<int>(layout.width / 8);
  std::int64_t local = -1;
  float weight = 0.0F;
  if (lane < top_k) {
    local = own.ids[place * top_k + lane] - rank * layout.local_experts;
    weight = own.weights[place * top_k + lane];
  }
  const std::uint32_t here = __ballot_sync(~0U, local >= 0 && local < layout.local_experts);
  if (here == 0) return;
  float sums[words_at_once][8];
  bool first = true;
  for (std::uint32_t left = here; left != 0; left &= left - 1) {
    const int choice = __ffs(static_cast<int>(left)) - 1;
    const float by = __shfl_sync(~0U, weight, choice);
    const uint4* const from = results + (place * top_k + choice) * words;
    uint4 found[words_at_once];
#pragma unroll
    for (int i = 0; i < words_at_once; ++i) {
      const int word = begin + i * warp + lane;
      if (word < words) found[i] = from[word];
    }
#pragma unroll
    for (int i = 0; i < words_at_once; ++i) add_weighted(found[i], by, first, sums[i]);
    first = false;
  }
#pragma unroll
  for (int i = 0; i < words_at_once; ++i) {
    const int word = begin + i * warp + lane;
    if (word >= words) continue;
    EightNumbers rounded;
#pragma unroll
    for (int n = 0; n < 8; ++n) rounded.of[n] = __float2bfloat16_rn(sums[i][n]);
    to[word] = *reinterpret_cast<const uint4*>(&rounded);
  }
}

/// Adds all ranks' results for this rank's row, words [begin, begin + sums_words); by a warp.
template <class Out>
__device__ __forceinline__ void add_returned(const PeerRows& exchange, const Region& own, int row,
                                             int begin, Out* out) {
  const DeviceExpertExchangeLayout& layout = exchange.layout;
  const int lane = threadIdx.x % warp, top_k = static_cast<int>(layout.top_k);
  const int words = static_cast<int>(layout.width / 8);
  const std::int64_t place = exchange.call.rank * layout.max_rows + row;
  const bool there = lane < top_k;
  const int id = there ? own.ids[place * top_k + lane] : 0;
  const std::uint32_t ranks = ranks_of(id, there, layout.local_experts);
  uint4 found[max_peer_ranks][sums_at_once];
#pragma unroll
  for (int rank = 0; rank < max_peer_ranks; ++rank) {
    if ((ranks >> rank & 1U) == 0) continue;
    const uint4* const from = own.returned + (rank * layout.max_rows + row) * words;
#pragma unroll
    for (int i = 0; i < sums_at_once; ++i) {
      const int word = begin + i * warp + lane;
      if (word < words) found[rank][i] = read(from + word);
    }
  }
  Out* const to = out + std::int64_t{row} * layout.width;
#pragma unroll
  for (int i = 0; i < sums_at_once; ++i) {
    const int word = begin + i * warp + lane;
    if (word >= words) continue;
    float sums[8];
    bool first = true;
#pragma unroll
    for (int rank = 0; rank < max_peer_ranks; ++rank) {
      if ((ranks >> rank & 1U) == 0) continue;
      add_weighted(found[rank][i], 1.0F, first, sums);
      first = false;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) store(to + word * 8 + n, sums[n]);
  }
}

/// All blocks run at once: each sends its share of all ranks' rows, waits for what all ranks send,
/// and adds its share of this rank's rows.
template <class Out>
__global__ void __launch_bounds__(threads) return_rows(PeerRows exchange, PeerRowsRegion places,
                                                       const uint4* results, int rows, Out* out) {
  begin_early_kernel();
  const PeerCall& call = exchange.call;
  const DeviceExpertExchangeLayout& layout = exchange.layout;
  const Region own = region_of(exchange, places, call.rank);
  const std::uint32_t epoch = *const_cast<volatile std::uint32_t*>(&own.control->epoch);
  const int words = static_cast<int>(layout.width / 8);
  const int parts = (words + part_words - 1) / part_words;
  const int first = blockIdx.x * warps + threadIdx.x / warp, stride = gridDim.x * warps;
  int before = 0;  // parts of earlier ranks, as if all ranks' parts were distributed together
  for (int rank = 0; rank < call.size; ++rank) {
    const int filled = own.control->filled[rank] * parts;
    uint4* const to =
        region_of(exchange, places, rank).returned + call.rank * layout.max_rows * words;
    for (int item = (first - before % stride + stride) % stride; item < filled; item += stride) {
      const int row = item / parts;
      return_part(own, results, layout, call.rank, rank * layout.max_rows + row,
                  item % parts * part_words, to + std::int64_t{row} * words);
    }
    before += filled;
  }
  if (is_last_block(&own.control->added) && threadIdx.x < call.size) {
    tell(&region_of(exchange, places, threadIdx.x).control->returned[call.rank], epoch);
  }
  bool there = true;
  if (threadIdx.x < call.size) {
    const std::uint32_t* const returned = &own.control->returned[threadIdx.x];
    for (int looks = 1; told(returned) != epoch; ++looks) {
      if (looks % looks_at_once == 0 && *call.end != 0) {
        there = false;
        break;
      }
    }
  }
  if (__syncthreads_and(there ? 1 : 0) == 0) return;
  const int sums = (words + sums_words - 1) / sums_words;
  for (int item = first; item < rows * sums; item += stride) {
    add_returned(exchange, own, item / sums, item % sums * sums_words, out);
  }
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PeerRowsRegion peer_rows_region(const DeviceExpertExchangeLayout& layout, int ranks) {
  const auto places = static_cast<std::size_t>(ranks * layout.max_rows);
  const auto assignments = places * static_cast<std::size_t>(layout.top_k);
  const std::size_t row_bytes = static_cast<std::size_t>(layout.width) * sizeof(bf16);
  PeerRowsRegion region;
  region.ids = peer_rows_control_bytes;
  region.weights = region.ids + aligned(assignments * sizeof(std::int32_t));
  region.scales = region.weights + aligned(assignments * sizeof(float));
  region.rows = region.scales + aligned(places * sizeof(float));
  region.returned = region.rows + aligned(places * row_bytes);
  region.bytes = region.returned + aligned(places * row_bytes);
  return region;
}

std::int32_t* filled_rows(std::byte* region) { return reinterpret_cast<Control*>(region)->filled; }

bool takes_peer_rows_exchange(const DeviceExpertExchangeLayout& layout) {
  return layout.width % 8 == 0 && layout.top_k <= max_top_k &&
         layout.max_rows * max_peer_ranks * layout.top_k < std::int64_t{1} << 31;
}

cudaError_t launch_dispatch(const PeerRows& exchange, const Tensor& x, const Tensor& scales,
                            const Tensor& ids, const Tensor& weights, cudaStream_t stream) {
  const std::int64_t blocks =
      std::clamp<std::int64_t>((x[0] + warps - 1) / warps, 1, max_dispatch_blocks);
  const auto row_bytes = static_cast<std::size_t>(x[1]) * size_of(x.dtype());
  const SentRows sent{.x = static_cast<const uint4*>(x.data()),
                      .scales = scales.empty() ? nullptr : scales.as<float>(),
                      .ids = ids.as<std::int32_t>(),
                      .weights = weights.as<float>(),
                      .rows = static_cast<int>(x[0]),
                      .words = static_cast<int>(row_bytes / sizeof(uint4)),
                      .are_codes = x.dtype() == DType::u8};
  return launch_early(send_rows, {dim3(static_cast<unsigned>(blocks)), threads}, stream, exchange,
                      peer_rows_region(exchange.layout, exchange.call.size), sent);
}

cudaError_t launch_combine(const PeerRows& exchange, const Tensor& results, const Tensor& out,
                           cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_type(out.dtype(), [&](auto* type) {
    using Out = element<decltype(type)>;
    error = launch_early(
        return_rows<Out>, {dim3(static_cast<unsigned>(multiprocessors_to_take())), threads}, stream,
        exchange, peer_rows_region(exchange.layout, exchange.call.size),
        static_cast<const uint4*>(results.data()), out[0], static_cast<Out*>(out.data()));
  });
  return error;
}

}  // namespace troupe
