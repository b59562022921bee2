// GEMMs of a decode batch's rows on Hopper's tensor cores (wgmma): one warp makes the copy engine
// bring tiles of weights and rows to shared memory, groups of four warps multiply them. One kernel
// for bf16 and for 8-bit codes, whose tiles have twice the columns.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/common/cache_policy.cuh"
#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/cuda/gemm/decode_gemm_tiling.hpp"
#include "models/ops/cuda/gemm/decode_output.cuh"
#include "models/ops/cuda/gemm/gemm_elements.cuh"
#include "models/ops/cuda/gemm/quantize_part.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int group_threads = 128;
constexpr int alignment = 1024;
/// Steps of k under way. With few rows two blocks of 8 stages find room on a multiprocessor; a
/// block that has one for itself reads faster with more.
constexpr int max_stages = 8, max_deep_stages = 16;
constexpr int max_coding_stages = 20;   // of blocks that make the codes of x
constexpr int max_shared = 225 * 1024;  // per block, besides its barriers and scales

/// Each of `groups` groups multiplies 64 rows of the weight with `rows` rows of x. `is_deep`: more
/// steps are under way. `kept_units`, unless 0: x is a row of bf16, and a block makes the codes of
/// its part of k itself, for which a thread keeps so many units of the row.
template <class Element_, int groups_, int rows_, bool is_deep = false, unsigned kept_units_ = 0>
struct Tiling {
  using Element = Element_;
  using Sum = typename Element::Sum;
  using Quad = typename Element::Quad;
  static constexpr int groups = groups_, rows = rows_;
  static constexpr unsigned kept_units = kept_units_;
  static constexpr bool makes_codes = kept_units > 0;
  static constexpr int tile_k = row_bytes / Element::bytes;
  static constexpr int consumers = groups * group_threads, threads = consumers + 32;
  static constexpr int weight_bytes = groups * group_rows * row_bytes;
  static constexpr int x_bytes = rows * row_bytes;
  static constexpr int stage_bytes = weight_bytes + (makes_codes ? 0 : x_bytes);
  static constexpr int max_of_stages = makes_codes ? max_coding_stages
                                       : is_deep   ? max_deep_stages
                                                   : max_stages;
  static constexpr int stages = std::min(max_of_stages, (max_shared - alignment) / stage_bytes);
  static constexpr int sums = rows / 2;  // per thread
  static constexpr int quads = rows / 8;
  /// The offset of the codes that a block with `steps` steps of k makes: they follow the stages
  /// that it uses.
  __host__ __device__ static constexpr int codes_at(int steps) {
    return (steps < stages ? steps : stages) * stage_bytes;
  }
  static_assert(stages >= 3 && consumers * rows / 2 * 4 <= stages * stage_bytes);
};

struct Gemm {
  CUtensorMap weight, x;
  DecodeOutput to;
  int k, k_steps;
  const float *weight_scales, *x_scales;  // of codes: by row
  const bf16* plain_x;                    // whose codes blocks make
};

/// In shared memory: the scales of codes in a block, those of the weight in the order of its rows
/// in the tile.
template <class T>
struct BlockScales {
  float weight[T::groups * group_rows], x[T::rows];
};

/// Called by all consumers, which alone meet here.
template <class T>
__device__ __forceinline__ void meet_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(T::consumers) : "memory");
}

/// Called by all consumers.
template <class T>
__device__ void read_weight_scales(const Gemm& gemm, BlockScales<T>& scales) {
  static_assert(T::groups * group_rows <= T::consumers);
  const int own = static_cast<int>(threadIdx.x);
  if (own >= T::groups * group_rows) return;
  const bool gated = gemm.to.output == Output::gated;
  const int at = static_cast<int>(blockIdx.y) * T::groups * group_rows + own;
  const int half = at / 16 * 8 + at % 8;  // of gates, or of ups
  const int row = !gated ? at : at % 16 < 8 ? half : gemm.to.width + half;
  scales.weight[own] = gemm.weight_scales[min(row, (gated ? 2 : 1) * gemm.to.width - 1)];
}
/// Called by all consumers.
template <class T>
__device__ void read_x_scales(const Gemm& gemm, BlockScales<T>& scales) {
  static_assert(T::rows <= T::consumers);
  const int own = static_cast<int>(threadIdx.x);
  if (own >= T::rows) return;
  scales.x[own] = gemm.x_scales[min(own, gemm.to.rows - 1)];
}
/// Makes the codes of this block's part of k, `steps` steps from `first`: row 0 of tiles, whose
/// other rows stay whatever they are. Called by all consumers.
template <class T>
__device__ void make_codes(const Gemm& gemm, int first, int steps, unsigned char* codes,
                           BlockScales<T>& scales) {
  constexpr unsigned step_units = T::tile_k / unit;
  const RowPart part{.row = gemm.plain_x,
                     .row_units = static_cast<unsigned>(gemm.k) / unit,
                     .padded_units = gemm.k_steps * step_units,
                     .first = first * step_units,
                     .units = steps * step_units};
  const float scale = quantize_part<T::Element::kind, T::consumers, T::kept_units>(
      part,
      [&](unsigned at) { return codes + at / step_units * T::x_bytes + at % step_units * unit; });
  if (threadIdx.x < T::rows) scales.x[threadIdx.x] = scale;
  show_to_products();
}

/// A thread's sums of quad `quad`, as store_quad takes them, times their rows' scales.
template <class T>
__device__ __forceinline__ float4 scaled(const BlockScales<T>& scales, int quad,
                                         typename T::Quad sums) {
  const float* const x = scales.x + 8 * quad + threadIdx.x % 4 * 2;
  const float* const weight = scales.weight + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const auto number = [](auto sum) { return static_cast<float>(sum); };
  return {number(sums.x) * x[0] * weight[0], number(sums.y) * x[1] * weight[0],
          number(sums.z) * x[0] * weight[8], number(sums.w) * x[1] * weight[8]};
}

/// Makes the copy engine bring this block's part of k, `steps` steps from `first`. Called by one
/// thread.
template <class T>
__device__ void copy_tiles(const Gemm& gemm, int first, int steps, std::uint32_t stages_at,
                           std::uint32_t full, std::uint32_t empty) {
  // Rows of the weight come in groups of eight; gated ones alternate between both halves.
  const int eights = static_cast<int>(blockIdx.y) * T::groups * group_rows / 8;
  const int tile = gemm.to.output == Output::gated ? eights / 2 : eights;
  const std::uint64_t policy = make_cache_policy(true);
  const auto copy_weights = [&](int step, int stage) {
    expect_bytes(full + 8 * stage, T::stage_bytes);
    copy_box(stages_at + stage * T::stage_bytes, &gemm.weight, (first + step) * T::tile_k, 0, 0,
             tile, 0, full + 8 * stage, policy);
  };
  const auto copy_rows = [&](int step, int stage) {
    copy_box(stages_at + stage * T::stage_bytes + T::weight_bytes, &gemm.x,
             (first + step) * T::tile_k, 0, 0, 0, 0, full + 8 * stage);
  };
  const int ahead = min(steps, T::stages);
  for (int step = 0; step < ahead; ++step) copy_weights(step, step);
  if constexpr (!T::makes_codes) {
    wait_for_kernels_before();
    for (int step = 0; step < ahead; ++step) copy_rows(step, step);
  }
  for (int step = ahead; step < steps; ++step) {
    const int stage = step % T::stages;
    wait_for_bytes(empty + 8 * stage, (step / T::stages - 1) % 2);
    copy_weights(step, stage);
    if constexpr (!T::makes_codes) copy_rows(step, stage);
  }
}

/// Computes this group's sums over the block's part of k.
template <class T>
__device__ void multiply_steps(int steps, std::uint32_t stages_at, std::uint32_t full,
                               std::uint32_t empty, typename T::Sum (&sums)[T::sums]) {
  using Element = typename T::Element;
  constexpr int steps_per_sum = Element::steps_per_sum;
  const int group = __shfl_sync(~0U, threadIdx.x / group_threads, 0);
#pragma unroll
  for (auto& sum : sums) sum = 0;
  float parts[steps_per_sum > 0 ? T::sums : 1];
  const auto release = [&](int stage) {
    if (threadIdx.x % 32 == 0) arrive(empty + 8 * stage);
  };
  int stage = 0, before = -1;
  std::uint32_t odd = 0;
  for (int step = 0; step < steps; ++step) {
    wait_for_bytes(full + 8 * stage, odd);
    const std::uint32_t at = stages_at + stage * T::stage_bytes;
    const std::uint64_t left = tile_descriptor(at + group * group_rows * row_bytes);
    const std::uint64_t right = tile_descriptor(
        T::makes_codes ? stages_at + T::codes_at(steps) + step * T::x_bytes : at + T::weight_bytes);
    const auto multiply = [&](bool adds, auto& to) {
      pin(to);
      open_products();
#pragma unroll
      for (int i = 0; i < row_bytes / 32; ++i) {
        Element::multiply(left + 2 * i, right + 2 * i, adds || i > 0 ? 1 : 0, to);
      }
      close_products();
    };
    bool is_part = false;
    if constexpr (steps_per_sum > 0) {
      multiply(step % steps_per_sum != 0, parts);
      is_part = step % steps_per_sum == steps_per_sum - 1 || step == steps - 1;
    } else {
      multiply(true, sums);
    }
    // The previous step's wgmma have ended, so its stage may be overwritten.
    wait_for_products<1>();
    if (before >= 0) release(before);
    before = stage;
    if (is_part) {
      if constexpr (steps_per_sum > 0) {
        wait_for_products<0>();
        pin(parts);
#pragma unroll
        for (int i = 0; i < T::sums; ++i) sums[i] += parts[i];
      }
      release(before);
      before = -1;
    }
    if (++stage == T::stages) {
      stage = 0;
      odd ^= 1;
    }
  }
  wait_for_products<0>();
  pin(sums);
}

/// Grid: parts of k, one cluster of them for each tile of the weight's rows; tiles.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    decode_gemm_kernel(const __grid_constant__ Gemm gemm) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t full[T::stages], empty[T::stages];
  const std::uint32_t begin = shared_address(shared);
  const std::uint32_t stages_at = (begin + alignment - 1) / alignment * alignment;
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : full) open_barrier(shared_address(&barrier));
    for (std::uint64_t& barrier : empty) open_barrier(shared_address(&barrier), T::groups * 4);
    show_barriers();
  }
  __syncthreads();
  const int parts = gridDim.x, part = blockIdx.x;
  const int first = gemm.k_steps * part / parts;
  const int steps = gemm.k_steps * (part + 1) / parts - first;
  if (threadIdx.x >= T::consumers) {
    if (threadIdx.x == T::consumers) {
      copy_tiles<T>(gemm, first, steps, stages_at, shared_address(full), shared_address(empty));
    }
    __syncwarp();
    // Not before its copies are issued: blocks of the next kernel would crowd on multiprocessors
    // that have none of this one.
    let_next_kernel_start();
    if (parts == 1) return;
    meet_in_cluster();
    meet_in_cluster();
    return;
  }
  constexpr bool has_scales = T::Element::has_scales;
  __shared__ std::conditional_t<has_scales, BlockScales<T>, char> scales;
  if constexpr (has_scales) {
    read_weight_scales<T>(gemm, scales);
    wait_for_kernels_before();  // which may make x, or its codes
    if constexpr (T::makes_codes) {
      make_codes<T>(gemm, first, steps, shared + (stages_at - begin) + T::codes_at(steps), scales);
    } else {
      read_x_scales<T>(gemm, scales);
    }
    meet_consumers<T>();
  }
  typename T::Sum sums[T::sums];
  multiply_steps<T>(steps, stages_at, shared_address(full), shared_address(empty), sums);
  const int warp = threadIdx.x / 32;
  const int at = (static_cast<int>(blockIdx.y) * T::groups * 4 + warp) * 16;
  const auto quad_of = [&](int quad) {
    return typename T::Quad{sums[4 * quad], sums[4 * quad + 1], sums[4 * quad + 2],
                            sums[4 * quad + 3]};
  };
  const auto store = [&](int quad, typename T::Quad values) {
    if constexpr (has_scales) {
      store_quad(gemm.to, quad, at, scaled<T>(scales, quad, values));
    } else {
      store_quad(gemm.to, quad, at, values);
    }
  };
  if (parts == 1) {
#pragma unroll
    for (int quad = 0; quad < T::quads; ++quad) {
      store(quad, quad_of(quad));
    }
    return;
  }
  // The stages' memory is reused for the sums once no group reads it: [quads][consumers].
  auto* const own = reinterpret_cast<typename T::Quad*>(shared + (stages_at - begin));
  meet_consumers<T>();
#pragma unroll
  for (int quad = 0; quad < T::quads; ++quad) {
    own[quad * T::consumers + threadIdx.x] = quad_of(quad);
  }
  meet_in_cluster();
  const int end = T::quads * (part + 1) / parts;
  for (int quad = T::quads * part / parts; quad < end; ++quad) {
    typename T::Quad sum{};
    for (int other = 0; other < parts; ++other) {
      const typename T::Quad theirs = in_block(own, other)[quad * T::consumers + threadIdx.x];
      sum = {sum.x + theirs.x, sum.y + theirs.y, sum.z + theirs.z, sum.w + theirs.w};
    }
    store(quad, sum);
  }
  meet_in_cluster();  // no block ends while others read its sums
#endif
}

template <class T>
cudaError_t launch(const DecodeGemm& wanted, int parts, cudaStream_t stream) {
  using Element = typename T::Element;
  constexpr std::uint32_t tile_k = T::tile_k;
  const auto n = static_cast<std::uint64_t>(wanted.n), k = static_cast<std::uint64_t>(wanted.k);
  constexpr std::uint32_t eights = T::groups * group_rows / 8;
  TiledTensor weight = wanted.gated ? TiledTensor{wanted.weight,
                                                  {k, 8, 2, n / 16, 1},
                                                  {k, n / 2 * k, 8 * k, n * k},
                                                  {tile_k, 8, 2, eights / 2, 1}}
                                    : TiledTensor{wanted.weight,
                                                  {k, 8, 1, n / 8, 1},
                                                  {k, n * k, 8 * k, n * k},
                                                  {tile_k, 8, 1, eights, 1}};
  const auto rows = static_cast<std::uint64_t>(wanted.rows);
  TiledTensor x{
      wanted.x, {k, rows, 1, 1, 1}, {k, rows * k, rows * k, rows * k}, {tile_k, T::rows, 1, 1, 1}};
  weight.element_bytes = x.element_bytes = Element::bytes;
  Gemm gemm{};
  if (!make_tensor_map(weight, gemm.weight)) return cudaErrorInvalidValue;
  if (T::makes_codes) {
    gemm.plain_x = static_cast<const bf16*>(wanted.x);
  } else if (!make_tensor_map(x, gemm.x)) {
    return cudaErrorInvalidValue;
  }
  gemm.to.out = wanted.out;
  gemm.to.rows = static_cast<int>(wanted.rows);
  gemm.to.width = static_cast<int>(wanted.gated ? wanted.n / 2 : wanted.n);
  gemm.k = static_cast<int>(wanted.k);
  gemm.k_steps = static_cast<int>((wanted.k + tile_k - 1) / tile_k);
  gemm.to.output = wanted.gated                     ? Output::gated
                   : wanted.out_dtype == DType::f32 ? Output::f32
                                                    : Output::bf16;
  gemm.weight_scales = wanted.weight_scales;
  gemm.x_scales = wanted.x_scales;
  auto* const kernel = decode_gemm_kernel<T>;
  const int steps = (gemm.k_steps + parts - 1) / parts;
  const int shared = alignment + (T::makes_codes ? T::codes_at(steps) + steps * T::x_bytes
                                                 : T::stages * T::stage_bytes);
  const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::makes_codes ? max_shared : shared);
  if (allowed != cudaSuccess) return allowed;
  const unsigned tiles = blocks_of(wanted.n, T::groups * group_rows);
  return launch_early_as(
      dim3(static_cast<unsigned>(parts)), kernel,
      {dim3(static_cast<unsigned>(parts), tiles), T::threads, static_cast<std::size_t>(shared)},
      stream, gemm);
}

/// Calls body with the type of the smallest tiling of `groups` that takes `rows`.
template <class Element, int groups, bool is_deep = false, class Body>
void with_rows(std::int64_t rows, Body&& body) {
  if constexpr (Element::bytes == 1) {
    if (rows <= 16) return body(Tiling<Element, groups, 16, is_deep>{});
  }
  if (is_deep || rows <= max_deep_rows) {
    return body(Tiling<Element, groups, max_deep_rows, is_deep>{});
  }
  if constexpr (!is_deep) {
    if (rows <= 64) return body(Tiling<Element, groups, 64>{});
    if (rows <= 96) return body(Tiling<Element, groups, 96>{});
    return body(Tiling<Element, groups, 128>{});
  }
}

/// A thread keeps `kept_units` units of a row of bf16, whose codes its block makes.
template <class Element, unsigned kept_units>
using CodingTiling = Tiling<Element, 1, 8, true, kept_units>;

constexpr std::int64_t max_k_of(unsigned kept_units) {
  return std::int64_t{kept_units} * group_threads * unit;
}
constexpr unsigned max_kept_units = 16;
static_assert(max_k_of(max_kept_units) == max_coded_k &&
              max_coded_steps * row_bytes == max_part_units * group_threads * unit);
static_assert(alignment + CodingTiling<E4m3, 4>::stages * CodingTiling<E4m3, 4>::stage_bytes +
                  max_coded_steps * CodingTiling<E4m3, 4>::x_bytes <=
              max_shared);

template <class Element>
cudaError_t launch_coding(const DecodeGemm& gemm, DecodeGemmTiling tiling, cudaStream_t stream) {
  if (!makes_codes(gemm, tiling)) return cudaErrorInvalidValue;
  if (gemm.k <= max_k_of(4)) return launch<CodingTiling<Element, 4>>(gemm, tiling.parts, stream);
  if (gemm.k <= max_k_of(8)) return launch<CodingTiling<Element, 8>>(gemm, tiling.parts, stream);
  return launch<CodingTiling<Element, max_kept_units>>(gemm, tiling.parts, stream);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t launch_decode_gemm(const DecodeGemm& gemm, DecodeGemmTiling tiling,
                               cudaStream_t stream) {
  if (gemm.weight_scales != nullptr && gemm.x_scales == nullptr) {
    return gemm.kind == CodeKind::int8 ? launch_coding<Int8>(gemm, tiling, stream)
                                       : launch_coding<E4m3>(gemm, tiling, stream);
  }
  cudaError_t error = cudaErrorInvalidValue;
  const auto run = [&](auto type) { error = launch<decltype(type)>(gemm, tiling.parts, stream); };
  const auto run_on = [&]<class Element>(Element) {
    if (reads_deep(gemm, tiling)) return with_rows<Element, 1, true>(gemm.rows, run);
    if (tiling.groups == 1) with_rows<Element, 1>(gemm.rows, run);
    if (tiling.groups == 3) with_rows<Element, 3>(gemm.rows, run);
  };
  if (gemm.weight_scales == nullptr) {
    run_on(Bf16{});
  } else if (gemm.kind == CodeKind::int8) {
    run_on(Int8{});
  } else {
    run_on(E4m3{});
  }
  return error;
}

}  // namespace troupe
