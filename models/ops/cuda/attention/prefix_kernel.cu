// Attention of many rows to a prefix that they share, as cascade inference has it (Juravsky et al.,
// Hydragen, 2024, section 3; Ye et al., FlashInfer, 2025, section 3.1.2): queries of different
// sequences are the rows of one product. A warp has 16 of a block's queries with the online softmax
// of FlashAttention-2 (Dao, 2023, section 3); all warps share tiles of keys and values. Each row's
// part of the softmax goes to memory, where its decode attention adds it.
#include "models/ops/cuda/attention/head_lanes.cuh"
#include "models/ops/cuda/attention/matrix_loads.cuh"
#include "models/ops/cuda/attention/prefix_kernel.hpp"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int page = attention_page, warps = 4, threads = warps * 32, stages = 2;
constexpr int warp_queries = prefix_columns / warps;
static_assert(warp_queries == 16);

/// A block's item for one KV head.
struct Work {
  PrefixItem item;
  int kv_head;
  int queries;  ///< rows times query heads of the KV head

  __device__ Work(const PrefixPass& of, int block)
      : item(of.pass.items[block / of.pass.kv_heads]),
        kv_head(block % of.pass.kv_heads),
        queries(item.rows * of.pass.group) {}

  __device__ PrefixRow row(const PrefixPass& of, int query) const {
    return of.rows[item.first_row + query / of.pass.group];
  }
};

template <int dim>
struct Memory {
  static constexpr int tile = prefix_tile(dim);
  /// Bytes of a key; the gap spreads eight of them over all banks.
  static constexpr int pitch = dim * 2 + 16;
  static constexpr int tile_bytes = tile * pitch;

  unsigned char tiles[stages][2][tile_bytes];  ///< keys, values
  std::int32_t pages[max_prefix_pages];        ///< where the item's pages lie in the cache

  __device__ std::uint32_t keys(int stage) const { return shared_address(tiles[stage][0]); }
  __device__ std::uint32_t values(int stage) const { return shared_address(tiles[stage][1]); }
};

/// Begins to copy one of the item's tiles, with zeros after its last page.
template <int dim>
__device__ __forceinline__ void request_tile(const PrefixPass& of, const Work& work,
                                             Memory<dim>& memory, int tile_index) {
  using M = Memory<dim>;
  constexpr int units = dim / 8;  // of a key
  static_assert(M::tile * units % threads == 0);
  const int stage = tile_index % stages;
#pragma unroll
  for (int turn = 0; turn < M::tile * units / threads; ++turn) {
    const int i = threadIdx.x + turn * threads, position = i / units, unit = i % units;
    const int in_item = tile_index * (M::tile / page) + position / page;
    const bool there = in_item < work.item.pages;
    const std::int64_t at =
        there ? (std::int64_t{memory.pages[in_item]} * page + position % page) * dim + unit * 8 : 0;
    const int to = position * M::pitch + unit * 16;
    copy_async(memory.keys(stage) + to, of.pass.keys + at, there);
    copy_async(memory.values(stage) + to, of.pass.values + at, there);
  }
}

/// The 16 queries of a warp, the left operand of products with keys.
template <int dim>
struct Queries {
  static constexpr int steps = dim / 16;
  std::uint32_t words[steps][4];

  /// Zeros for queries that there are not.
  __device__ void read(const PrefixPass& of, const Work& work, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + lane / 4 + 8 * half, group = of.pass.group;
      const bool there = query < work.queries;
      const bf16* from = of.pass.q + 2 * (lane % 4);
      if (there) {
        const std::int64_t head = std::int64_t{work.row(of, query).row} * of.pass.kv_heads * group +
                                  work.kv_head * group + query % group;
        from += head * dim;
      }
#pragma unroll
      for (int s = 0; s < steps; ++s) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const auto* const pair = reinterpret_cast<const std::uint32_t*>(from + 16 * s + 8 * k);
          words[s][2 * k + half] = there ? *pair : 0;
        }
      }
    }
  }
};

__device__ __forceinline__ float max_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0U, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0U, value, 2));
}
__device__ __forceinline__ float sum_of_row(float value) {
  value += __shfl_xor_sync(~0U, value, 1);
  return value + __shfl_xor_sync(~0U, value, 2);
}

/// 2^x; 0 of -infinity, and of what is below the normal numbers.
__device__ __forceinline__ float power_of_two(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

/// The online softmax of a warp's queries: a lane has queries lane / 4 and lane / 4 + 8, and of
/// their sums elements 8 j + 2 (lane % 4) and the next.
template <int dim>
struct QuerySoftmax {
  /// Positions at a time: more leave registers for fewer blocks.
  static constexpr int step = 32, octets = step / 8;
  static_assert(prefix_tile(dim) % step == 0);

  float maximum[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  ///< this lane's share
  float sums[dim / 8][4] = {};

  /// Adds positions [first, first + step) of a tile of which the first `there` exist; one of them
  /// at least.
  __device__ __forceinline__ void add(const PrefixPass& of, const Memory<dim>& memory, int stage,
                                      const Queries<dim>& queries, int first, int there) {
    float scores[octets][4] = {};
    score(memory.keys(stage) + first * Memory<dim>::pitch, queries, scores);
    float scale = of.pass.scale;
    if (of.pass.soft_cap != 0.0F) {
#pragma unroll
      for (auto& octet : scores) {
#pragma unroll
        for (float& score : octet) score = capped_score(score * scale, of.pass.soft_cap);
      }
      scale = 1.0F;
    }
    if (there - first < step) hide_from(there - first, scores);
    shrink_to(scores, scale);
#pragma unroll
    for (int o = 0; o < octets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[o][i] = power_of_two(__fmaf_rn(scores[o][i], scale, -maximum[i / 2]));
        total[i / 2] += scores[o][i];
      }
    }
    add_values(memory.values(stage) + first * Memory<dim>::pitch, scores);
  }

 private:
  static __device__ __forceinline__ void hide_from(int there, float (&scores)[octets][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int o = 0; o < octets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * o + 2 * (lane % 4) + i % 2 >= there) scores[o][i] = -INFINITY;
      }
    }
  }
  /// Raises the maximum to that of the scores times `scale`, which is positive.
  __device__ __forceinline__ void shrink_to(const float (&scores)[octets][4], float scale) {
    float now[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int o = 0; o < octets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i / 2] = fmaxf(now[i / 2], scores[o][i]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      now[half] = fmaxf(maximum[half], max_of_row(now[half]) * scale);
    }
    if (!__any_sync(~0U, now[0] > maximum[0] || now[1] > maximum[1])) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shrink = power_of_two(maximum[half] - now[half]);
      maximum[half] = now[half];
      total[half] *= shrink;
#pragma unroll
      for (auto& octet : sums) {
        octet[2 * half] *= shrink;
        octet[2 * half + 1] *= shrink;
      }
    }
  }
  /// Several loads go before the products that want them, so that these wait once.
  static __device__ __forceinline__ void score(std::uint32_t keys, const Queries<dim>& queries,
                                               float (&scores)[octets][4]) {
    constexpr int pitch = Memory<dim>::pitch, at_once = 2, pairs = octets / 2;
    const int lane = threadIdx.x % 32;
    // Matrices of 8 keys: the first 8 elements of keys 0 to 7, the next 8, and both of keys 8
    // to 15.
    const std::uint32_t from = keys + (lane % 8 + 8 * (lane / 16)) * pitch + lane / 8 % 2 * 16;
#pragma unroll
    for (int first = 0; first < Queries<dim>::steps; first += at_once) {
      std::uint32_t k[at_once][pairs][4];
#pragma unroll
      for (int s = 0; s < at_once; ++s) {
        if (first + s >= Queries<dim>::steps) break;
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair) {
          load_matrices<false>(k[s][pair], from + pair * 16 * pitch + (first + s) * 32);
        }
      }
#pragma unroll
      for (int s = 0; s < at_once; ++s) {
        if (first + s >= Queries<dim>::steps) break;
        const std::uint32_t(&q)[4] = queries.words[first + s];
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair) {
          const std::uint32_t(&of)[4] = k[s][pair];
          mma(scores[2 * pair], q[0], q[1], q[2], q[3], of[0], of[1]);
          mma(scores[2 * pair + 1], q[0], q[1], q[2], q[3], of[2], of[3]);
        }
      }
    }
  }
  __device__ __forceinline__ void add_values(std::uint32_t values,
                                             const float (&terms)[octets][4]) {
    constexpr int pitch = Memory<dim>::pitch, at_once = 4, steps = dim / 16;
    const int lane = threadIdx.x % 32;
    // Matrices of 8 positions: 8 elements of positions 0 to 7, of 8 to 15, and the next 8 of both.
    const std::uint32_t from = values + lane % 16 * pitch + lane / 16 * 16;
#pragma unroll
    for (int pair = 0; pair < octets / 2; ++pair) {
      const float(&left)[4] = terms[2 * pair];
      const float(&right)[4] = terms[2 * pair + 1];
      const std::uint32_t p[4] = {round_pair(left[0], left[1]), round_pair(left[2], left[3]),
                                  round_pair(right[0], right[1]), round_pair(right[2], right[3])};
#pragma unroll
      for (int first = 0; first < steps; first += at_once) {
        std::uint32_t v[at_once][4];
#pragma unroll
        for (int d = 0; d < at_once; ++d) {
          if (first + d >= steps) break;
          load_matrices<true>(v[d], from + pair * 16 * pitch + (first + d) * 32);
        }
#pragma unroll
        for (int d = 0; d < at_once; ++d) {
          if (first + d >= steps) break;
          mma(sums[2 * (first + d)], p[0], p[1], p[2], p[3], v[d][0], v[d][1]);
          mma(sums[2 * (first + d) + 1], p[0], p[1], p[2], p[3], v[d][2], v[d][3]);
        }
      }
    }
  }

 public:
  /// Leaves the parts of the queries from `first` on to their rows.
  __device__ __forceinline__ void leave(const PrefixPass& of, const Work& work, int first) const {
    const int lane = threadIdx.x % 32, group = of.pass.group;
    const int head_blocks = of.slot_blocks / of.pass.kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = sum_of_row(total[half]);
      const int query = first + lane / 4 + 8 * half, head = query % group;
      if (query >= work.queries) continue;
      const std::int64_t slot = work.row(of, query).slot + work.item.part;
      const std::int64_t block =
          slot * of.slot_blocks + work.kv_head * head_blocks + head / of.slot_columns;
      const std::int64_t column = block * of.slot_columns + head % of.slot_columns;
      if (lane % 4 == 0) __stcg(of.pass.prefix_scales + column, make_float2(maximum[half], all));
      float* const to = of.pass.prefix_sums + column * dim + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j) {
        __stcg(reinterpret_cast<float2*>(to + 8 * j),
               make_float2(sums[j][2 * half], sums[j][2 * half + 1]));
      }
    }
  }
};

/// A block per item and KV head.
template <int dim>
__global__ void __launch_bounds__(threads, prefix_blocks(dim))
    attend_to_prefix(const __grid_constant__ PrefixPass of) {
#if __CUDA_ARCH__ >= 900
  using M = Memory<dim>;
  extern __shared__ __align__(128) unsigned char raw[];
  M& memory = *reinterpret_cast<M*>(raw);
  let_next_kernel_start();
  const Work work(of, blockIdx.x);
  if (work.item.rows == 0) return;
  // The plan and the tables were written before this pass.
  const int pages_per_block = of.pass.pages_per_block;
  for (int p = threadIdx.x; p < work.item.pages; p += threads) {
    const int in_row = work.item.first_page + p;
    const int block = of.pass.tables[work.item.table + in_row / pages_per_block];
    memory.pages[p] =
        (block * of.pass.kv_heads + work.kv_head) * pages_per_block + in_row % pages_per_block;
  }
  __syncthreads();
  const int tiles = (work.item.pages * page + M::tile - 1) / M::tile;
  static_assert(stages == 2);
  // A row that fills the prefix's last block may do so in this pass: that one is not read early.
  const bool early = work.item.pages >= M::tile / page + pages_per_block;
  if (early) request_tile(of, work, memory, 0);
  wait_for_kernels_before();
  if (!early) request_tile(of, work, memory, 0);
  close_copies();
  const int first = threadIdx.x / 32 * warp_queries;
  Queries<dim> queries;
  queries.read(of, work, first);
  QuerySoftmax<dim> softmax;
  for (int t = 0; t < tiles; ++t) {
    wait_for_copies<stages - 2>();
    __syncthreads();  // the tile is there for all, and all have read the one before
    if (t + stages - 1 < tiles) request_tile(of, work, memory, t + stages - 1);
    close_copies();
    if (first >= work.queries) continue;
    const int there = min(work.item.pages * page - t * M::tile, M::tile);
#pragma unroll
    for (int begin = 0; begin < M::tile; begin += QuerySoftmax<dim>::step) {
      if (begin < there) softmax.add(of, memory, t % stages, queries, begin, there);
    }
  }
  softmax.leave(of, work, first);
#endif
}

template <int dim>
cudaError_t launch(const PrefixPass& of, cudaStream_t stream) {
  const auto kernel = attend_to_prefix<dim>;
  constexpr int bytes = sizeof(Memory<dim>);
  // Set per device: each device has its own instance of the kernel.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const Grid grid{dim3(static_cast<unsigned>(of.pass.entries * of.pass.kv_heads)), threads, bytes};
  return launch_early(kernel, grid, stream, of);
}

}  // namespace
}  // namespace cuda

cudaError_t launch_prefix_attention(const PrefixPass& pass, int head_dim, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return cuda::launch<64>(pass, stream);
    case 80:
      return cuda::launch<80>(pass, stream);
    case 96:
      return cuda::launch<96>(pass, stream);
    case 112:
      return cuda::launch<112>(pass, stream);
    case 128:
      return cuda::launch<128>(pass, stream);
    case 192:
      return cuda::launch<192>(pass, stream);
    case 256:
      return cuda::launch<256>(pass, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace troupe
