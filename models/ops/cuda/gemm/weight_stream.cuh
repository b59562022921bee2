// Weights of skinny GEMMs on their way through shared memory: each warp has its own queue of copies
// there, and waits for no other warp.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "models/ops/cuda/common/cache_policy.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

constexpr int slab_rows = 16;     // rows of weights of one instruction
constexpr int max_rows_of_x = 8;  // rows of x of one instruction

/// Two halves (f16) of two codes (E4M3), exactly.
__device__ __forceinline__ std::uint32_t halves_of_codes(std::uint32_t codes) {
  std::uint32_t halves = 0;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(codes)));
#endif
  return halves;
}
/// Rows that are multiplied with codes are halves, times this: so numbers up to 2^22 are finite.
constexpr float halves_factor = 0x1p-6F;

/// Two halves of two bf16, times halves_factor.
__device__ __forceinline__ std::uint32_t halves_of(std::uint32_t pair) {
  const __half2 halves = __floats2half2_rn(__uint_as_float(pair << 16) * halves_factor,
                                           __uint_as_float(pair & 0xffff0000U) * halves_factor);
  return *reinterpret_cast<const std::uint32_t*>(&halves);
}
__device__ __forceinline__ uint4 halves_of(const uint4& eight) {
  return {halves_of(eight.x), halves_of(eight.y), halves_of(eight.z), halves_of(eight.w)};
}

/// Adds the products of four codes (E4M3) of two rows with four halves of x.
__device__ __forceinline__ void mma_codes(float (&sums)[4], std::uint32_t top, std::uint32_t bottom,
                                          std::uint32_t x_low, std::uint32_t x_high) {
  mma_f16(sums, halves_of_codes(top), halves_of_codes(bottom), halves_of_codes(top >> 16),
          halves_of_codes(bottom >> 16), x_low, x_high);
}

/// A warp's slabs of 16 rows, or a multiple, by `columns` of weights, `stages` at a time:
/// requested, awaited, multiplied and released in order. Weights are bf16, or E4M3 codes
/// (std::uint8_t).
template <int columns_, int stages, class Weight_ = bf16, int groups_ = 1>
class SlabQueue {
 public:
  using Weight = Weight_;
  static constexpr int groups = groups_;  // of 16 rows: 8 from either half of the slab's rows
  static constexpr int rows = slab_rows * groups;
  static constexpr bool is_coded = sizeof(Weight) == 1;
  static constexpr int columns = columns_;
  static constexpr int unit_columns = 16 / static_cast<int>(sizeof(Weight));  // of 16 bytes
  static constexpr int row_units = columns / unit_columns;
  static constexpr int x_units = columns / 32;  // units of a row of x per lane
  static constexpr int slab_bytes = rows * columns * static_cast<int>(sizeof(Weight));
  /// The shared memory that one warp needs, at a multiple of 128.
  static constexpr int bytes = stages * slab_bytes;

  __device__ SlabQueue(unsigned char* memory, std::uint64_t (&barriers)[stages])
      : memory_(memory), barriers_(shared_address(barriers)), lane_(threadIdx.x % 32) {
    if (lane_ == 0) {
      for (int i = 0; i < stages; ++i) open_barrier(barriers_ + 8 * i);
      show_barriers();
    }
    __syncwarp();
  }

  /// Lane r < 16 passes the begin of row r, of which `left` columns exist.
  __device__ __forceinline__ void request(const Weight* row, int left) {
    const auto row_bytes = static_cast<std::uint32_t>(min(left, columns) * sizeof(Weight));
    const std::uint32_t barrier = barriers_ + 8 * to_;
    static_assert(groups == 1);
    if (lane_ == 0) expect_bytes(barrier, slab_rows * row_bytes);
    __syncwarp();
    if (lane_ < slab_rows) {
      const std::uint32_t to = shared_address(memory_ + to_ * slab_bytes);
      copy_bulk(to + lane_ * (slab_bytes / slab_rows), row, row_bytes, barrier, policy_);
    }
    advance(to_);
  }
  /// Requests the columns from `column` of tile `tile` of a map of tiles of two halves of `rows`;
  /// missing columns become zeros.
  __device__ __forceinline__ void request(const CUtensorMap& map, int column, int tile) {
    if (lane_ == 0) {
      const std::uint32_t barrier = barriers_ + 8 * to_;
      expect_bytes(barrier, slab_bytes);
      copy_box(shared_address(memory_ + to_ * slab_bytes), &map, column, 0, 0, tile, 0, barrier,
               policy_);
    }
    advance(to_);
  }
  __device__ __forceinline__ void wait() const { wait_for_bytes(barriers_ + 8 * from_, turn_); }

  /// Adds the slab's product with this lane's units of x to two chains; their sum holds at 4 g + 2
  /// h
  /// + i row l / 4 + 8 g of half h of the weights and x row 2 (l % 4) + i. `left` columns exist. x
  /// is from read_x, with codes halves.
  __device__ __forceinline__ void multiply(const uint4 (&x)[x_units], int left,
                                           float (&even)[4 * groups],
                                           float (&odd)[4 * groups]) const {
    const int own = lane_ / 4, fourth = lane_ % 4;
    // Eight lanes that read at a time have two rows, which would meet in the same banks: they read
    // different halves of 128 bytes.
    const int exchanged = own % 2;
    const auto* const top =
        reinterpret_cast<const uint4*>(memory_ + from_ * slab_bytes) + own * row_units + fourth;
    constexpr int half = 8 * groups * row_units;
    constexpr int lanes_columns = 4 * unit_columns, x_of_unit = unit_columns / 8;
#pragma unroll
    for (int i = 0; i < row_units / 4; i += 2) {
      const int first = 4 * i + 4 * exchanged, second = 4 * i + 4 - 4 * exchanged;
      const int column = lanes_columns * i + unit_columns * fourth;
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const auto* const upper = top + 8 * g * row_units;
        const uint4 a = upper[first], b = upper[second];
        const uint4 c = upper[half + first], d = upper[half + second];
        add(exchanged ? b : a, exchanged ? d : c, x + x_of_unit * i, column < left, even + 4 * g,
            odd + 4 * g);
        add(exchanged ? a : b, exchanged ? c : d, x + x_of_unit * (i + 1),
            column + lanes_columns < left, even + 4 * g, odd + 4 * g);
      }
    }
  }
  /// Marks the slab as read: the next request may reuse its stage.
  __device__ __forceinline__ void release() {
    __syncwarp();
    advance(from_);
    if (from_ == 0) turn_ ^= 1;
  }

 private:
  __device__ static __forceinline__ void advance(int& stage) {
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  __device__ static __forceinline__ void add(uint4 top, uint4 bottom, const uint4* x, bool there,
                                             float* even_sums, float* odd_sums) {
    auto& even = *reinterpret_cast<float(*)[4]>(even_sums);
    auto& odd = *reinterpret_cast<float(*)[4]>(odd_sums);
    if (!there) top = bottom = uint4{};  // memory to which nothing was copied holds anything
    if constexpr (is_coded) {
      mma_codes(even, top.x, bottom.x, x[0].x, x[0].y);
      mma_codes(odd, top.y, bottom.y, x[0].z, x[0].w);
      mma_codes(even, top.z, bottom.z, x[1].x, x[1].y);
      mma_codes(odd, top.w, bottom.w, x[1].z, x[1].w);
    } else {
      mma(even, top.x, bottom.x, top.y, bottom.y, x->x, x->y);
      mma(odd, top.z, bottom.z, top.w, bottom.w, x->z, x->w);
    }
  }

  unsigned char* memory_;
  std::uint32_t barriers_;
  int lane_, to_ = 0, from_ = 0;
  std::uint32_t turn_ = 0;  // of the stages, odd or even
  std::uint64_t policy_ = make_cache_policy(true);
};

/// Reads this lane's units of a row of x, or zeros if it is null, those that it multiplies with
/// units of Weight: `at` is the slab's first column of k.
template <class Weight = bf16, int units>
__device__ __forceinline__ void read_x(const bf16* row, int at, int k, uint4 (&values)[units]) {
  constexpr int of_unit = 2 / sizeof(Weight), width = 8 * of_unit;
  const int in_chunk = threadIdx.x % 4 * width;
#pragma unroll
  for (int i = 0; i < units; ++i) {
    const int column = at + i / of_unit * 4 * width + in_chunk + i % of_unit * 8;
    const bool there = row != nullptr && column < k;
    values[i] = there ? *reinterpret_cast<const uint4*>(row + column) : uint4{};
  }
}

/// The partial sums of a block's warps for a tile of `groups` groups of 16 rows. The last warp to
/// arrive adds them up, while the others go on to the next tile, but not further.
template <int warps, int groups = 1>
struct TileSums {
  static constexpr int tiles = 2;
  static constexpr int tile_rows = slab_rows * groups, half = 8 * groups;
  unsigned arrived[tiles], done[tiles];

  /// The size of `parts` for add().
  static constexpr int bytes(std::int64_t rows) {
    return static_cast<int>(tiles * warps * tile_rows * rows * sizeof(float));
  }
  /// Called by all threads; a barrier must follow.
  __device__ void open() {
    if (threadIdx.x < tiles) arrived[threadIdx.x] = done[threadIdx.x] = 0;
  }
  /// Called by each of the first `of` warps for tile 0, 1, .. of the block, which has at most
  /// `rows` rows of x. Calls finish(sum) in the last warp to arrive, where sum(weight row, x row)
  /// adds in the order of warps.
  template <class Finish>
  __device__ __forceinline__ void add(float* parts, int rows, int tile, int of,
                                      const float (&even)[4 * groups],
                                      const float (&odd)[4 * groups], const Finish& finish) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
    const int slot = tile % tiles, stride = tile_rows * rows;
    const unsigned turn = tile / tiles;
    float* const of_tile = parts + slot * warps * stride;
    while (*static_cast<volatile unsigned*>(&done[slot]) != turn) {
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane % 4 * 2 + i;
      if (row >= rows) break;
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        float* const to = of_tile + warp * stride + (8 * g + own) * rows + row;
        to[0] = even[4 * g + i] + odd[4 * g + i];
        to[half * rows] = even[4 * g + 2 + i] + odd[4 * g + 2 + i];
      }
    }
    __threadfence_block();
    __syncwarp();
    unsigned before = 0;
    if (lane == 0) before = atomicAdd(&arrived[slot], 1U);
    before = __shfl_sync(~0U, before, 0);
    if (before + 1 != (turn + 1) * of) return;
    __threadfence_block();
    __syncwarp();  // what the first lane has seen, all have
    finish([&](int weight_row, int row) {
      const float* const first = of_tile + weight_row * rows + row;
      float sum = *first;
#pragma unroll
      for (int w = 1; w < warps; ++w) {
        if (w < of) sum += first[w * stride];
      }
      return sum;
    });
    __threadfence_block();
    __syncwarp();
    if (lane == 0) *static_cast<volatile unsigned*>(&done[slot]) = turn + 1;
  }
};

}  // namespace troupe::cuda
