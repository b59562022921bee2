// Latent attention of one row on tensor cores: a block multiplies tiles of 64 positions, which the
// copy engine brings, with all heads' queries.
#pragma once

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/matrix_loads.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda::latent {

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

/// The address of a 16-byte unit of key `position` of a tile.
__device__ __forceinline__ std::uint32_t unit_address(std::uint32_t tile_at, int position, int line,
                                                      int unit) {
  const int exchanged = unit ^ ((position * lines + line) % 8);
  return tile_at + position * key_bytes + line * line_bytes + exchanged * 16;
}

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

  /// Calls body(head, element, sums of it and the next) for the group's heads.
  template <class Body>
  __device__ void for_each(int group, const Body& body) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = lane / 4 + 8 * h;
      if (head >= group) continue;
#pragma unroll
      for (int n = 0; n < warp_dims / 8; ++n) {
        body(head, warp * warp_dims + 8 * n + 2 * (lane % 4),
             float2{sums[n][2 * h], sums[n][2 * h + 1]});
      }
    }
  }
};

}  // namespace troupe::cuda::latent
