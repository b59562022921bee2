#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int max_heads = max_latent_heads, dim = latent_key_dim, value_dim = latent_value_dim;
constexpr int tile = 64;  // positions per block and step
constexpr int stages = 2, warps = 8, threads = warps * 32;
/// Query rows in shared memory are padded by 16 bytes, so that eight of them share no bank.
constexpr int row_units = dim / 8 + 1, row_bytes = row_units * 16;
/// The copy engine brings a page as lines of 64 elements, nine per key, and swizzles the 16-byte
/// units of line l by unit ^ (l % 8): so units of eight keys share no bank either.
constexpr int lines = dim / 64, line_bytes = 128;
constexpr int key_bytes = lines * line_bytes, page_bytes = attention_page * key_bytes;
constexpr int tile_pages = tile / attention_page;
constexpr int score_row = tile + 4, term_row = tile + 8;
/// Each half of the block has half of the keys' elements, in steps of 16.
constexpr int k_steps = dim / 16 / 2;
constexpr int warp_dims = value_dim / warps;
static_assert(warp_dims == 64, "a line of each key");

struct Memory {
  alignas(1024) unsigned char tiles[stages][tile_pages * page_bytes];
  uint4 query[max_heads * row_units];
  float scores[2][max_heads * score_row];  ///< from each half of the keys' elements
  bf16 terms[max_heads * term_row];
  float shrink[max_heads];
  float2 scales[max_heads];  ///< maximum and total of the block's share of the row
  std::uint64_t barriers[stages];

  /// The block's sums [head][element], in the memory of its tiles.
  __device__ float* sums() { return reinterpret_cast<float*>(tiles); }
};
static_assert(max_heads * value_dim * sizeof(float) <= sizeof(Memory::tiles));

/// A block's share of the tiles of a row; the other blocks of its cluster have the other shares.
struct Work {
  std::int32_t row, table;  ///< see DecodePart
  int first_page, pages;    ///< the share; pages may be 0
  int positions;            ///< in these pages
  int new_page;             ///< the first page of the row that earlier kernels may still write

  __device__ Work(const DecodePass& pass, int block, int blocks) {
    const DecodePart part = pass.items[blockIdx.x / blocks];
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

/// Loads four matrices of 8 x 8 elements of 16 bits: lane 8 m + r passes the address of row r of
/// matrix m, and gets two adjacent elements in row lane / 4 of each, or, if `transposed`, in column
/// lane / 4.
template <bool transposed>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t from) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  }
}

/// The address of a 16-byte unit of key `position` of a tile.
__device__ __forceinline__ std::uint32_t unit_address(std::uint32_t tile_at, int position, int line,
                                                      int unit) {
  const int exchanged = unit ^ ((position * lines + line) % 8);
  return tile_at + position * key_bytes + line * line_bytes + exchanged * 16;
}

/// A block's tiles on their way to shared memory. One warp requests them, in order.
class TileQueue {
 public:
  __device__ TileQueue(const DecodePass& pass, const CUtensorMap& keys, const Work& work,
                       Memory& memory)
      : pass_(pass),
        keys_(keys),
        work_(work),
        memory_(memory),
        size_((work.pages + tile_pages - 1) / tile_pages) {}

  __device__ int size() const { return size_; }
  /// The last page of a tile.
  __device__ int last_page(int turn) const { return min((turn + 1) * tile_pages, work_.pages) - 1; }
  __device__ void request(int turn) {
    if (turn >= size_) return;
    const int lane = threadIdx.x % 32, first = turn * tile_pages;
    const int pages_per_block = pass_.pages_per_block;
    if (first % 32 == 0 && first + lane < work_.pages) {
      const int in_row = work_.first_page + first + lane;
      const std::int64_t block = pass_.tables[work_.table + in_row / pages_per_block];
      page_ = static_cast<int>(block * pages_per_block + in_row % pages_per_block);
    }
    const int page = __shfl_sync(~0U, page_, first % 32 + lane % tile_pages);
    const int there = last_page(turn) - first + 1;
    const std::uint32_t barrier = shared_address(&memory_.barriers[turn % stages]);
    if (lane == 0) expect_bytes(barrier, there * page_bytes);
    __syncwarp();
    if (lane >= there) return;
    copy_box(shared_address(memory_.tiles[turn % stages] + lane * page_bytes), &keys_, 0, 0,
             page * attention_page, 0, 0, barrier);
  }
  __device__ void wait(int turn) const {
    wait_for_bytes(shared_address(&memory_.barriers[turn % stages]), turn / stages % 2);
  }

 private:
  const DecodePass& pass_;
  const CUtensorMap& keys_;
  const Work& work_;
  Memory& memory_;
  int size_;
  int page_ = 0;  // in the cache, for this lane's turn among 32
};

/// A warp's share of the query: half of the elements of all heads.
struct QueryShare {
  std::uint32_t steps[k_steps][4];

  __device__ void load(const Memory& memory, int half) {
    const int lane = threadIdx.x % 32;
    const std::uint32_t from = shared_address(memory.query) + lane % 16 * row_bytes +
                               (half * k_steps * 16 + lane / 16 * 8) * sizeof(bf16);
#pragma unroll
    for (int s = 0; s < k_steps; ++s) load_matrices<false>(steps[s], from + s * 32);
  }
};

/// Writes the scores of 16 positions and all heads, over half of the elements, to shared memory.
__device__ __forceinline__ void score(Memory& memory, int stage, const QueryShare& query) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int positions = warp % 4 * 16, half = warp / 4;
  const std::uint32_t tile_at = shared_address(memory.tiles[stage]);
  const int position = positions + lane / 16 * 8 + lane % 8;
  float sums[2][2][4] = {};  // of even and odd steps, eight positions each
#pragma unroll
  for (int s = 0; s < k_steps; ++s) {
    std::uint32_t keys[4];
    const int unit = (half * k_steps + s) * 2;
    load_matrices<false>(keys, unit_address(tile_at, position, unit / 8, unit % 8 + lane / 8 % 2));
    const std::uint32_t(&q)[4] = query.steps[s];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mma(sums[s % 2][n], q[0], q[1], q[2], q[3], keys[2 * n], keys[2 * n + 1]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* const to =
          memory.scores[half] + (lane / 4 + 8 * h) * score_row + positions + 8 * n + 2 * (lane % 4);
      *reinterpret_cast<float2*>(to) = {sums[0][n][2 * h] + sums[1][n][2 * h],
                                        sums[0][n][2 * h + 1] + sums[1][n][2 * h + 1]};
    }
  }
}

/// The online softmax of a warp's two heads; a lane has two positions of a tile.
struct TileSoftmax {
  static constexpr int heads = max_heads / warps;
  float maximum[heads] = {-INFINITY, -INFINITY};
  float total[heads] = {};  // this lane's

  /// Adds a tile with `there` positions.
  __device__ void add(Memory& memory, int there, float scale) {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * heads;
#pragma unroll
    for (int h = 0; h < heads; ++h) {
      const int at = (first + h) * score_row + 2 * lane;
      const float2 low = *reinterpret_cast<const float2*>(memory.scores[0] + at);
      const float2 high = *reinterpret_cast<const float2*>(memory.scores[1] + at);
      const float x = 2 * lane < there ? (low.x + high.x) * scale : -INFINITY;
      const float y = 2 * lane + 1 < there ? (low.y + high.y) * scale : -INFINITY;
      const float now = fmaxf(maximum[h], warp_max(fmaxf(x, y)));
      const float shrink = exp2f(maximum[h] - now), a = exp2f(x - now), b = exp2f(y - now);
      maximum[h] = now;
      total[h] = total[h] * shrink + a + b;
      *reinterpret_cast<__nv_bfloat162*>(memory.terms + (first + h) * term_row + 2 * lane) =
          __floats2bfloat162_rn(a, b);
      if (lane == 0) memory.shrink[first + h] = shrink;
    }
  }
  __device__ void store(Memory& memory) const {
#pragma unroll
    for (int h = 0; h < heads; ++h) {
      const float all = warp_sum(total[h]);
      if (threadIdx.x % 32 == 0) {
        memory.scales[threadIdx.x / 32 * heads + h] = {maximum[h], all};
      }
    }
  }
};

/// The sums over a warp's share of the latent's elements: for heads lane / 4 and lane / 4 + 8, the
/// elements 8 n + 2 (lane % 4) and the next.
struct ValueSums {
  float sums[warp_dims / 8][4] = {};

  /// Adds a tile with `there` positions: rows after them hold anything; the last one replaces them,
  /// at weight 0.
  __device__ void add(const Memory& memory, int stage, int there) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float shrink[2] = {memory.shrink[lane / 4], memory.shrink[lane / 4 + 8]};
    if (__any_sync(~0U, shrink[0] != 1.0F || shrink[1] != 1.0F)) {
#pragma unroll
      for (int n = 0; n < warp_dims / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= shrink[i / 2];
      }
    }
    const std::uint32_t terms_at =
        shared_address(memory.terms) + (lane % 16 * term_row + lane / 16 * 8) * sizeof(bf16);
    const std::uint32_t tile_at = shared_address(memory.tiles[stage]);
#pragma unroll
    for (int step = 0; step < tile / 16; ++step) {
      std::uint32_t terms[4];
      load_matrices<false>(terms, terms_at + step * 32);
      const int position = min(step * 16 + lane / 8 % 2 * 8 + lane % 8, there - 1);
#pragma unroll
      for (int pair = 0; pair < warp_dims / 16; ++pair) {
        std::uint32_t values[4];
        load_matrices<true>(values, unit_address(tile_at, position, warp, 2 * pair + lane / 16));
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma(sums[2 * pair + n], terms[0], terms[1], terms[2], terms[3], values[2 * n],
              values[2 * n + 1]);
        }
      }
    }
  }

  /// Stores the group's heads to sums[head][element].
  __device__ void store(float* to, int group) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = lane / 4 + 8 * h;
      if (head >= group) continue;
#pragma unroll
      for (int n = 0; n < warp_dims / 8; ++n) {
        const int element = warp * warp_dims + 8 * n + 2 * (lane % 4);
        *reinterpret_cast<float2*>(to + head * value_dim + element) = {sums[n][2 * h],
                                                                       sums[n][2 * h + 1]};
      }
    }
  }
};

/// Combines the shares of a cluster: each block combines a part of the elements of all heads.
__device__ __forceinline__ void join_shares(const DecodePass& pass, std::int64_t first_head,
                                            Memory& memory, int block, int blocks) {
  const int quads = value_dim / 4 / blocks;  // per head
  for (int i = threadIdx.x; i < pass.group * quads; i += threads) {
    const int head = i / quads, element = (block * quads + i % quads) * 4;
    float maximum = -INFINITY;
    for (int b = 0; b < blocks; ++b) {
      maximum = fmaxf(maximum, in_block(memory.scales, b)[head].x);
    }
    PartSum all;
    for (int b = 0; b < blocks; ++b) {
      const float* const share = in_block(memory.sums(), b) + head * value_dim + element;
      all.add_below(maximum, in_block(memory.scales, b)[head],
                    *reinterpret_cast<const float4*>(share));
    }
    all.write(pass.out + (first_head + head) * value_dim + element);
  }
}

/// One cluster of blocks per row, with all heads.
__global__ void __launch_bounds__(threads, 1)
    attend_one_latent_row(const __grid_constant__ DecodePass pass,
                          const __grid_constant__ CUtensorMap keys, int blocks) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char raw[];
  Memory& memory = *reinterpret_cast<Memory*>(raw);
  let_next_kernel_start();
  // The plan, the tables and all keys but the last were written before this pass.
  const int block = blocks > 1 ? block_of_cluster() : 0, warp = threadIdx.x / 32;
  const Work work(pass, block, blocks);
  TileQueue queue(pass, keys, work, memory);
  int requested = 0;
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : memory.barriers) open_barrier(shared_address(&barrier));
    show_barriers();
  }
  __syncthreads();
  const int ahead = min(stages, queue.size());
  if (warp == 0) {
    while (requested < ahead && !work.may_be_new(queue.last_page(requested))) {
      queue.request(requested++);
    }
  }
  wait_for_kernels_before();
  if (warp == 0) {
    while (requested < ahead) queue.request(requested++);
  }
  const std::int64_t first_head = std::int64_t{work.row} * pass.group;
  for (int i = threadIdx.x; i < max_heads * dim / 8; i += threads) {
    const int head = i / (dim / 8), unit = i % (dim / 8);
    const bf16* const from = pass.q + (first_head + head) * dim + unit * 8;
    memory.query[head * row_units + unit] =
        head < pass.group ? *reinterpret_cast<const uint4*>(from) : uint4{};
  }
  __syncthreads();
  QueryShare query;
  query.load(memory, warp / 4);
  TileSoftmax softmax;
  ValueSums values;
  for (int turn = 0; turn < queue.size(); ++turn) {
    const int stage = turn % stages;
    queue.wait(turn);
    score(memory, stage, query);
    __syncthreads();
    const int there = min(work.positions - turn * tile, tile);
    softmax.add(memory, there, pass.scale);
    __syncthreads();
    values.add(memory, stage, there);
    __syncthreads();  // all have read the tile: another may replace it
    if (warp == 0) queue.request(turn + stages);
  }
  softmax.store(memory);
  values.store(memory.sums(), pass.group);
  if (blocks > 1) {
    meet_in_cluster();
  } else {
    __syncthreads();
  }
  join_shares(pass, first_head, memory, block, blocks);
  if (blocks > 1) meet_in_cluster();  // no block ends while others read its memory
#endif
}

}  // namespace
}  // namespace cuda

int latent_blocks(std::int64_t rows) {
  // The costs of a row, and of starting and combining, in tiles: measured at contexts of about 800.
  constexpr double row_tiles = 12, block_tiles = 1.5;
  int best = 1;
  double least = 0;
  for (int blocks = 1; blocks <= 8; blocks *= 2) {
    const std::int64_t waves =
        (rows * blocks + cuda::multiprocessors() - 1) / cuda::multiprocessors();
    const double time = static_cast<double>(waves) * (row_tiles / blocks + block_tiles);
    if (blocks > 1 && time >= least) continue;
    best = blocks;
    least = time;
  }
  return best;
}

cudaError_t attend_latent_rows(const DecodePass& pass, std::int64_t pages, int blocks,
                               cudaStream_t stream) {
  constexpr std::uint64_t line = cuda::line_bytes / sizeof(cuda::bf16);
  const auto positions = static_cast<std::uint64_t>(pages) * attention_page;
  const TiledTensor tensor{
      .data = pass.keys,
      .sizes = {line, cuda::lines, positions, 1, 1},
      .strides = {line, cuda::dim, positions * cuda::dim, positions * cuda::dim},
      .box = {line, cuda::lines, attention_page, 1, 1}};
  CUtensorMap keys;
  if (!make_tensor_map(tensor, keys)) return cudaErrorInvalidValue;
  const auto kernel = cuda::attend_one_latent_row;
  constexpr int bytes = sizeof(cuda::Memory);
  // Set per device: each device has its own instance of the kernel.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const auto shares = static_cast<unsigned>(blocks);
  const cuda::Grid grid{dim3(static_cast<unsigned>(pass.entries) * shares), cuda::threads, bytes};
  return cuda::launch_early_as(dim3(shares), kernel, grid, stream, pass, keys, blocks);
}

}  // namespace troupe
