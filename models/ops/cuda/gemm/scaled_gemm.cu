// GEMMs of many rows of 8-bit codes on Hopper's tensor cores (wgmma), by pairs of blocks that each
// get half of what both read from the copy engine. In each block one warp makes the copy engine
// bring tiles to shared memory, and two groups of four warps multiply and write 64 rows each.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/cuda/gemm/scaled_gemm_tiles.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

using namespace scaled;

/// The bits of a sum as a float, which nobody computes with, and back.
__device__ __forceinline__ float bits_of(float sum) { return sum; }
__device__ __forceinline__ float bits_of(int sum) { return __int_as_float(sum); }
template <class Sum>
__device__ __forceinline__ Sum sum_of(float bits) {
  if constexpr (std::is_same_v<Sum, int>) return __float_as_int(bits);
  return bits;
}

/// Multiplies and writes tiles: a thread of the two groups.
template <class T>
class Consumer {
  using Sum = typename T::Sum;

 public:
  __device__ Consumer(const Gemm& gemm, const Places& places, int steps)
      : gemm_(gemm),
        places_(places),
        steps_(steps),
        stages_(used_stages<T>(steps)),
        block_(block_of_cluster()),
        warp_(__shfl_sync(~0U, threadIdx.x / 32, 0)),
        lane_(threadIdx.x % 32),
        passing_(places.passing + warp_ * T::warp_bytes) {}

  __device__ void run() {
    for_each_tile<T>(gemm_, [&](const Tile& tile) {
      Sum sums[T::sums];
      add_steps(sums);
      if constexpr (T::cuts_k) {
        Sum own[T::sums / 2];
        exchange(sums, own);
        store(tile, block_ * (T::columns / 2), own);
      } else {
        store(tile, 0, sums);
      }
      scales_at_ ^= T::scales_bytes;
    });
  }

 private:
  /// Says that this warp has read a stage: to all whose copies go there.
  __device__ void release(int stage) const {
    if (T::cuts_k) {
      if (lane_ == 0) arrive(places_.empty + 8 * stage);
    } else {
      if (lane_ < pair_blocks) arrive_in_block(places_.empty + 8 * stage, lane_);
    }
  }

  /// Computes this group's rows of x times the tile's rows of the weight.
  __device__ void add_steps(Sum (&sums)[T::sums]) {
    using Element = typename T::Element;
    constexpr int steps_per_sum = Element::steps_per_sum;
    const int group = warp_ / 4;
    Sum parts[steps_per_sum > 0 ? T::sums : 1];
#pragma unroll
    for (Sum& sum : sums) sum = 0;
    int before = -1;
    for (int step = 0; step < steps_; ++step) {
      wait_for_bytes(places_.full + 8 * stage_, odd_);
      const std::uint32_t at = places_.stages + stage_ * T::stage_bytes;
      const std::uint64_t left = tile_descriptor(at + group * half_x_bytes),
                          right = tile_descriptor(at + x_bytes);
      const auto multiply = [&](bool adds, auto& to) {
        pin(to);
        open_products();
#pragma unroll
        for (int i = 0; i < row_bytes / 32; ++i) {
          Element::multiply(left + 2 * i, right + 2 * i, adds || i > 0 ? 1 : 0, to);
        }
        close_products();
      };
      if constexpr (steps_per_sum > 0) {
        multiply(step % steps_per_sum != 0, parts);
      } else {
        multiply(true, sums);
      }
      wait_for_products<1>();  // those of the step before, whose stage may be overwritten
      if (before >= 0) release(before);
      before = stage_;
      if constexpr (steps_per_sum > 0) {
        if (step % steps_per_sum == steps_per_sum - 1 || step == steps_ - 1) {
          wait_for_products<0>();
          release(before);
          before = -1;
          pin(parts);
#pragma unroll
          for (int i = 0; i < T::sums; ++i) sums[i] += parts[i];
        }
      }
      if (++stage_ == stages_) {
        stage_ = 0;
        odd_ ^= 1;
      }
    }
    wait_for_products<0>();
    if (before >= 0) release(before);
    pin(sums);
  }

  /// Sends sums of the other block's half of the columns there, and adds to `own`, of this block's,
  /// those that come.
  __device__ void exchange(const Sum (&sums)[T::sums], Sum (&own)[T::sums / 2]) {
    constexpr int quads = T::sums / 8;
    const auto quad_of = [&](int half, int quad) {
      // Registers have no addresses: `half` chooses between two.
      const auto sum = [&](int i) {
        return bits_of(half == 0 ? sums[4 * quad + i] : sums[T::sums / 2 + 4 * quad + i]);
      };
      return float4{sum(0), sum(1), sum(2), sum(3)};
    };
    const int other = block_ ^ 1;
    const std::uint32_t to = address_in_block(passing_, other),
                        received = address_in_block(places_.received, other);
#pragma unroll
    for (int quad = 0; quad < quads; ++quad) {
      store_in_block(to + (quad * 32 + lane_) * 16, quad_of(other, quad), received);
    }
    wait_for_bytes(places_.received, 0);
#pragma unroll
    for (int quad = 0; quad < quads; ++quad) {
      const float4 mine = quad_of(block_, quad),
                   theirs = load_shared_quad(passing_ + (quad * 32 + lane_) * 16);
      own[4 * quad] = sum_of<Sum>(mine.x) + sum_of<Sum>(theirs.x);
      own[4 * quad + 1] = sum_of<Sum>(mine.y) + sum_of<Sum>(theirs.y);
      own[4 * quad + 2] = sum_of<Sum>(mine.z) + sum_of<Sum>(theirs.z);
      own[4 * quad + 3] = sum_of<Sum>(mine.w) + sum_of<Sum>(theirs.w);
    }
  }

  /// Writes sums, in wgmma's layout, times their scales: columns of the tile from `from` on.
  /// Through shared memory, so that whole sectors are written.
  template <int count>
  __device__ void store(const Tile& tile, int from, const Sum (&sums)[count]) {
    constexpr int columns = 2 * count;
    constexpr int chunk = columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : 16;
    static_assert(columns % chunk == 0);
    constexpr int units = chunk / unit, rows_at_once = 32 / units;
    const std::uint32_t scales = places_.scales + scales_at_;
    const int first = tile.row + warp_ * warp_rows;
    const std::uint32_t x_scales = scales + 4 * (T::columns + warp_ * warp_rows + lane_ / 4);
    const float upper = load_shared_float(x_scales), lower = load_shared_float(x_scales + 32);
    const auto place_of = [&](int row, int u) {
      return passing_ + row * row_bytes + (u ^ (row % 8)) * 16;
    };
#pragma unroll
    for (int at = 0; at < columns; at += chunk) {
      __syncwarp();
#pragma unroll
      for (int u = 0; u < units; u += 2) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = at + unit * (u + i);
          const float2 of_weight = load_shared_pair(scales + 4 * (from + column + lane_ % 4 * 2));
          const auto number = [&](int j) { return static_cast<float>(sums[column / 2 + j]); };
          pairs[2 * i] =
              round_pair(number(0) * upper * of_weight.x, number(1) * upper * of_weight.y);
          pairs[2 * i + 1] =
              round_pair(number(2) * lower * of_weight.x, number(3) * lower * of_weight.y);
        }
        store_matrices(place_of(lane_ % warp_rows, u + lane_ / 16), pairs);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < warp_rows; i += rows_at_once) {
        const int row = i + lane_ / units, u = lane_ % units;
        const int column = tile.column + from + at + unit * u;
        const uint4 eight = load_shared(place_of(row, u));
        if (first + row < gemm_.rows && column < gemm_.n) {
          *reinterpret_cast<uint4*>(gemm_.out + std::size_t(first + row) * gemm_.n + column) =
              eight;
        }
      }
    }
  }

  const Gemm& gemm_;
  const Places& places_;
  int steps_, stages_, block_, warp_, lane_;
  std::uint32_t passing_;
  int stage_ = 0;
  std::uint32_t odd_ = 0, scales_at_ = 0;
};

template <class T>
__global__ void __launch_bounds__(threads, 1)
    scaled_gemm_kernel(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[T::stages], empty[T::stages], received;
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  const std::uint32_t passing = stages_at + T::stages * T::stage_bytes;
  const Places places{stages_at,
                      passing,
                      passing + warps * T::warp_bytes,
                      shared_address(full),
                      shared_address(empty),
                      shared_address(&received)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < T::stages; ++stage) {
      open_barrier(places.full + 8 * stage);
      open_barrier(places.empty + 8 * stage, T::cuts_k ? warps : pair_blocks * warps);
    }
    open_barrier(places.received);
    show_barriers();
    if constexpr (T::cuts_k) expect_bytes(places.received, warps * T::warp_bytes);
  }
  if (threadIdx.x == consumers) {
    prefetch_map(gemm.weight);
    prefetch_map(gemm.x);
  }
  meet_in_cluster();  // the other block's barriers are initialised
  const int part = T::cuts_k ? block_of_cluster() : 0, parts = T::cuts_k ? 2 : 1;
  const int first = gemm.k_steps * part / parts;
  const int steps = gemm.k_steps * (part + 1) / parts - first;
  if (threadIdx.x >= consumers) {
    leave_registers<producer_registers>();
    if (threadIdx.x / 32 == warps) {
      if (threadIdx.x == consumers) Producer<T>(gemm, places, first, steps).run();
      __syncwarp();
      // Not before its copies are issued: blocks of the next kernel would crowd on multiprocessors
      // that have none of this one.
      let_next_kernel_start();
    }
  } else {
    take_registers<consumer_registers>();
    wait_for_kernels_before();  // which may read what is written here
    Consumer<T>(gemm, places, steps).run();
  }
  __syncwarp();
  meet_in_cluster();  // no block ends while the other writes to its shared memory
#endif
}

template <class T>
cudaError_t launch(const ScaledGemm& wanted, PairShares shares, cudaStream_t stream) {
  const auto n = static_cast<std::uint64_t>(wanted.n), k = static_cast<std::uint64_t>(wanted.k);
  const auto rows = static_cast<std::uint64_t>(wanted.rows);
  const auto map_of = [k](const void* data, std::uint64_t count, std::uint32_t box_rows,
                          CUtensorMap& map) {
    const std::uint64_t all = count * k;
    TiledTensor tensor{data, {k, count, 1, 1, 1}, {k, all, all, all}, {tile_k, box_rows, 1, 1, 1}};
    tensor.element_bytes = 1;
    return make_tensor_map(tensor, map);
  };
  Gemm gemm{};
  if (!map_of(wanted.weight, n, T::columns / 2, gemm.weight) ||
      !map_of(wanted.x, rows, group_rows, gemm.x)) {
    return cudaErrorInvalidValue;
  }
  gemm.weight_scales = wanted.weight_scales;
  gemm.x_scales = wanted.x_scales;
  gemm.out = static_cast<bf16*>(wanted.out);
  gemm.rows = static_cast<int>(rows);
  gemm.n = static_cast<int>(n);
  gemm.k_steps = static_cast<int>((k + tile_k - 1) / tile_k);
  if (T::cuts_k && gemm.k_steps < pair_blocks) return cudaErrorInvalidValue;
  const auto units_of = [&](std::int64_t all, int size, bool pairs) {
    return static_cast<int>(blocks_of(all, pairs ? 2 * size : size));
  };
  gemm.row_units = units_of(wanted.rows, tile_rows, shares == PairShares::weight);
  gemm.column_units = units_of(wanted.n, T::columns, shares == PairShares::x);
  gemm.shares = shares;
  auto* const kernel = scaled_gemm_kernel<T>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::shared_bytes);
  if (allowed != cudaSuccess) return allowed;
  const int pairs = multiprocessors() / pair_blocks, units = gemm.row_units * gemm.column_units;
  if (T::cuts_k && units > pairs) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>(std::min(units, pairs) * pair_blocks);
  return launch_early_as(dim3(pair_blocks), kernel, {dim3(blocks), threads, T::shared_bytes},
                         stream, gemm);
}

template <class Element, int columns>
cudaError_t launch_columns(const ScaledGemm& gemm, PairShares shares, cudaStream_t stream) {
  if (shares != PairShares::tile) {
    return launch<Tiling<Element, columns, false>>(gemm, shares, stream);
  }
  if constexpr (columns > 192) {
    return cudaErrorInvalidValue;
  } else {
    return launch<Tiling<Element, columns, true>>(gemm, shares, stream);
  }
}

template <class Element>
cudaError_t launch_tiling(const ScaledGemm& gemm, ScaledGemmTiling tiling, cudaStream_t stream) {
  switch (tiling.columns) {
    case 64:
      return launch_columns<Element, 64>(gemm, tiling.shares, stream);
    case 96:
      return launch_columns<Element, 96>(gemm, tiling.shares, stream);
    case 128:
      return launch_columns<Element, 128>(gemm, tiling.shares, stream);
    case 192:
      return launch_columns<Element, 192>(gemm, tiling.shares, stream);
    case 256:
      // Sums of E4M3 codes take twice the registers.
      if constexpr (Element::steps_per_sum == 0) {
        return launch_columns<Element, 256>(gemm, tiling.shares, stream);
      }
      return cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_scaled_gemm(const ScaledGemm& gemm, ScaledGemmTiling tiling,
                               cudaStream_t stream) {
  return gemm.kind == CodeKind::int8 ? launch_tiling<Int8>(gemm, tiling, stream)
                                     : launch_tiling<E4m3>(gemm, tiling, stream);
}

}  // namespace troupe
