#include <algorithm>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/latent_tiles.cuh"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

using namespace latent;

/// A block's share of the tiles of a row; the other blocks of its cluster have the other shares.
struct Work {
  std::int32_t row, table;  ///< see DecodePart
  int first_page, pages;    ///< the share; pages may be 0
  int positions;            ///< in these pages
  int new_page;             ///< the first page of the row that earlier kernels may still write

  __device__ Work(const DecodePass& pass, const DecodePart& part, int block, int blocks) {
    row = part.row;
    table = part.table;
    const int tiles = (part.positions + tile - 1) / tile, share = (tiles + blocks - 1) / blocks;
    first_page =
        min(block * share * tile_pages, (part.positions + attention_page - 1) / attention_page);
    positions = max(min(part.positions - first_page * attention_page, share * tile), 0);
    pages = (positions + attention_page - 1) / attention_page;
    // The row's own page, or one of a row that fills a block in this pass, if this row shares it.
    new_page = (part.positions + attention_page - 1) / attention_page - 1 - pass.pages_per_block;
  }
  __device__ bool may_be_new(int page) const { return first_page + page >= new_page; }
};

/// The entries of a cluster, every gridDim-th: forwards and backwards in turn, as the longest rows
/// are first.
class Entries {
 public:
  __device__ Entries(const DecodePass& pass, int blocks)
      : count_(pass.entries), clusters_(gridDim.x / blocks), cluster_(blockIdx.x / blocks) {}

  /// The cluster's turn-th entry; -1 if it has no more.
  __device__ int operator[](int turn) const {
    const int entry = turn * clusters_ + (turn % 2 == 0 ? cluster_ : clusters_ - 1 - cluster_);
    return entry < count_ ? entry : -1;
  }

 private:
  int count_, clusters_, cluster_;
};

/// The tiles of a block's shares of all its entries, on their way to shared memory. One warp
/// requests them, in order, so that those of the next row come while this one's are multiplied.
class TileQueue {
 public:
  __device__ TileQueue(const DecodePass& pass, const CUtensorMap& keys, const Entries& entries,
                       Memory& memory, int block, int blocks)
      : pass_(pass),
        keys_(keys),
        entries_(entries),
        memory_(memory),
        block_(block),
        blocks_(blocks),
        work_(pass, pass.items[entries[0]], block, blocks) {
    find_tile();
  }

  /// True if earlier kernels may still write the next tile.
  __device__ bool may_be_new() const { return has_more_ && work_.may_be_new(last_page()); }
  /// Begins to copy the next tile, if there is one, to the next stage.
  __device__ void request() {
    if (!has_more_) return;
    const int lane = threadIdx.x % 32, first = tile_ * tile_pages;
    const int pages_per_block = pass_.pages_per_block;
    if (first % 32 == 0 && first + lane < work_.pages) {
      const int in_row = work_.first_page + first + lane;
      const std::int64_t block = pass_.tables[work_.table + in_row / pages_per_block];
      page_ = static_cast<int>(block * pages_per_block + in_row % pages_per_block);
    }
    const int page = __shfl_sync(~0U, page_, first % 32 + lane % tile_pages);
    const int there = last_page() - first + 1, stage = requested_++ % stages;
    const std::uint32_t barrier = shared_address(&memory_.barriers[stage]);
    if (lane == 0) expect_bytes(barrier, there * page_bytes);
    __syncwarp();
    if (lane < there) {
      copy_box(shared_address(memory_.tiles[stage] + lane * page_bytes), &keys_, 0, 0,
               page * attention_page, 0, 0, barrier);
    }
    ++tile_;
    find_tile();
  }

 private:
  __device__ int last_page() const { return min((tile_ + 1) * tile_pages, work_.pages) - 1; }
  /// Goes on to the next entry with tiles if this one has no more.
  __device__ void find_tile() {
    while (tile_ * tile_pages >= work_.pages) {
      const int entry = entries_[++turn_];
      has_more_ = entry >= 0;
      if (!has_more_) return;
      work_ = Work(pass_, pass_.items[entry], block_, blocks_);
      tile_ = 0;
    }
  }

  const DecodePass& pass_;
  const CUtensorMap& keys_;
  const Entries& entries_;
  Memory& memory_;
  int block_, blocks_;
  int turn_ = 0, tile_ = 0, requested_ = 0;
  bool has_more_ = true;
  Work work_;
  int page_ = 0;  // in the cache, for this lane's page among 32
};

/// Combines the shares of a cluster: each block combines a part of the elements of all heads.
template <int blocks>
__device__ __forceinline__ void join_shares(const DecodePass& pass, std::int64_t first_head,
                                            Memory& memory, int block) {
  constexpr int quads = value_dim / 4 / blocks;  // per head
  for (int i = threadIdx.x; i < pass.group * quads; i += threads) {
    const int head = i / quads, element = (block * quads + i % quads) * 4;
    float2 scales[blocks];
    float4 shares[blocks];
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const float* const share = in_block(memory.sums(), b) + head * value_dim + element;
      scales[b] = in_block(memory.scales, b)[head];
      shares[b] = *reinterpret_cast<const float4*>(share);
    }
    float maximum = -INFINITY;
#pragma unroll
    for (int b = 0; b < blocks; ++b) maximum = fmaxf(maximum, scales[b].x);
    PartSum all;
#pragma unroll
    for (int b = 0; b < blocks; ++b) all.add_below(maximum, scales[b], shares[b]);
    all.write(pass.out + (first_head + head) * value_dim + element);
  }
}

/// Writes a row that the block has by itself.
__device__ __forceinline__ void write_row(const DecodePass& pass, std::int64_t first_head,
                                          const Memory& memory, const ValueSums& values) {
  values.for_each(pass.group, [&](int head, int element, float2 sums) {
    const float total = memory.scales[head].y;
    *reinterpret_cast<__nv_bfloat162*>(pass.out + (first_head + head) * value_dim + element) =
        __floats2bfloat162_rn(__fdiv_rn(sums.x, total), __fdiv_rn(sums.y, total));
  });
}

/// Combines the blocks of a cluster, which have a share of the row each, in the memory of tiles.
__device__ __forceinline__ void join_row(const DecodePass& pass, std::int64_t first_head,
                                         Memory& memory, const ValueSums& values, int block,
                                         int blocks) {
  values.for_each(pass.group, [&](int head, int element, float2 sums) {
    *reinterpret_cast<float2*>(memory.sums() + head * value_dim + element) = sums;
  });
  meet_in_cluster();
  if (blocks == 2) join_shares<2>(pass, first_head, memory, block);
  if (blocks == 4) join_shares<4>(pass, first_head, memory, block);
  if (blocks == 8) join_shares<8>(pass, first_head, memory, block);
  meet_in_cluster();  // no block goes on while others read its memory
}

/// Begins to copy a row's queries to shared memory, zeros for heads that there are not.
__device__ __forceinline__ void request_query(const DecodePass& pass, std::int64_t first_head,
                                              Memory& memory) {
  constexpr int units = max_heads * dim / 8;
#pragma unroll
  for (int turn = 0; turn < (units + threads - 1) / threads; ++turn) {
    const int i = threadIdx.x + turn * threads, head = i / (dim / 8), unit = i % (dim / 8);
    if (i >= units) break;
    const bool there = head < pass.group;
    const bf16* const from = pass.q + (there ? (first_head + head) * dim + unit * 8 : 0);
    copy_async(shared_address(&memory.query[head * row_units + unit]), from, there);
  }
  close_copies();
}

/// Clusters of `blocks` blocks take rows in turn, with all heads; of several blocks, one row.
__global__ void __launch_bounds__(threads, 1)
    attend_latent_rows_in_turn(const __grid_constant__ DecodePass pass,
                               const __grid_constant__ CUtensorMap keys, int blocks) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char raw[];
  Memory& memory = *reinterpret_cast<Memory*>(raw);
  let_next_kernel_start();
  // The plan, the tables and all keys but the last were written before this pass.
  const int block = blocks > 1 ? block_of_cluster() : 0, warp = threadIdx.x / 32;
  const Entries entries(pass, blocks);
  TileQueue queue(pass, keys, entries, memory, block, blocks);
  DecodePart part = pass.items[entries[0]];
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : memory.barriers) open_barrier(shared_address(&barrier));
    show_barriers();
  }
  __syncthreads();
  int requested = 0;
  if (warp == 0) {
    for (; requested < stages && !queue.may_be_new(); ++requested) queue.request();
  }
  wait_for_kernels_before();
  if (warp == 0) {
    for (; requested < stages; ++requested) queue.request();
  }
  const auto head_of = [&](int row) { return std::int64_t{row} * pass.group; };
  request_query(pass, head_of(part.row), memory);
  int taken = 0;  // tiles
  for (int turn = 0, entry = entries[0]; entry >= 0;) {
    const Work work(pass, part, block, blocks);
    const std::int64_t first_head = head_of(work.row);
    entry = entries[++turn];
    if (entry >= 0) part = pass.items[entry];  // not waited for yet
    wait_for_copies<0>();
    __syncthreads();
    QueryShare query;
    query.load(memory, warp / 4);
    TileSoftmax softmax;
    ValueSums values;
    for (int first = 0; first < work.positions; first += tile, ++taken) {
      const int stage = taken % stages;
      wait_for_bytes(shared_address(&memory.barriers[stage]), taken / stages % 2);
      score(memory, stage, query);
      __syncthreads();
      const int there = min(work.positions - first, tile);
      softmax.add(memory, there, pass.scale);
      __syncthreads();
      values.add(memory, stage, there);
      __syncthreads();  // all have read the tile: another may replace it
      if (warp == 0) queue.request();
    }
    // The last tile's barriers came after all had loaded this row's queries.
    if (entry >= 0) request_query(pass, head_of(part.row), memory);
    softmax.store(memory);
    if (blocks > 1) {
      join_row(pass, first_head, memory, values, block, blocks);
    } else {
      __syncthreads();
      write_row(pass, first_head, memory, values);
    }
  }
#endif
}

}  // namespace
}  // namespace cuda

int latent_blocks(std::int64_t rows) {
  // The costs of a row, and of starting and combining, in tiles: measured at contexts of about 700.
  constexpr double row_tiles = 12, block_tiles = 4, next_row_tiles = 0.5;
  const std::int64_t multiprocessors = cuda::multiprocessors();
  int best = 1;
  double least = 0;
  for (int blocks = 1; blocks <= 8; blocks *= 2) {
    const auto waves = static_cast<double>((rows * blocks + multiprocessors - 1) / multiprocessors);
    const double time = blocks == 1 ? waves * (row_tiles + next_row_tiles) + block_tiles
                                    : waves * (row_tiles / blocks + block_tiles);
    if (blocks > 1 && time >= least) continue;
    best = blocks;
    least = time;
  }
  return best;
}

cudaError_t attend_latent_rows(const DecodePass& pass, std::int64_t pages, int blocks,
                               cudaStream_t stream) {
  constexpr std::uint64_t line = cuda::latent::line_bytes / sizeof(cuda::bf16);
  const auto positions = static_cast<std::uint64_t>(pages) * attention_page;
  const TiledTensor tensor{
      .data = pass.keys,
      .sizes = {line, cuda::latent::lines, positions, 1, 1},
      .strides = {line, latent_key_dim, positions * latent_key_dim, positions * latent_key_dim},
      .box = {line, cuda::latent::lines, attention_page, 1, 1}};
  CUtensorMap keys;
  if (!make_tensor_map(tensor, keys)) return cudaErrorInvalidValue;
  const auto kernel = cuda::attend_latent_rows_in_turn;
  constexpr int bytes = sizeof(cuda::latent::Memory);
  // Set per device: each device has its own instance of the kernel.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const auto shares = static_cast<unsigned>(blocks);
  const auto rows = static_cast<unsigned>(pass.entries);
  const unsigned clusters =
      blocks > 1 ? rows : std::min(rows, static_cast<unsigned>(cuda::multiprocessors()));
  const cuda::Grid grid{dim3(clusters * shares), cuda::latent::threads, bytes};
  return cuda::launch_early_as(dim3(shares), kernel, grid, stream, pass, keys, blocks);
}

}  // namespace troupe
