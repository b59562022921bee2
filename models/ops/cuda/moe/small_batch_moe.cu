// The experts of a few tokens: each chosen expert's matrices are streamed through shared memory
// once.
#include <algorithm>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/common/tensor_map.hpp"
#include "models/ops/cuda/gemm/weight_stream.cuh"
#include "models/ops/cuda/moe/small_batch_moe.hpp"
#include "models/ops/cuda/moe/small_batch_plan.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int max_tokens = max_rows_of_x;  // no expert has more rows

/// One slab of a row of 2,048 is a warp's whole part of it. Of codes it has twice the rows, so that
/// a tile is as many bytes.
constexpr int gate_stages = 1, gate_blocks = 2;  // per multiprocessor
template <class Weight>
using GateSlabs = SlabQueue<256, gate_stages, Weight, 2 / sizeof(Weight)>;
/// The slabs of an expert's row of 768 are all in flight at once.
constexpr int down_stages = 3;
template <class Weight>
using DownSlabs = SlabQueue<256, down_stages, Weight>;

/// Sums are multiplied by it besides their scales: with codes, x was made halves_factor times
/// itself.
template <class Weight>
constexpr float of_sums = sizeof(Weight) == 1 ? 1.0F / halves_factor : 1.0F;

/// With weights in codes, activated rows are halves between the two kernels (halves_factor).
__device__ __forceinline__ void store_activated(bf16* to, float value, bool as_half) {
  if (as_half) {
    *reinterpret_cast<__half*>(to) = __float2half_rn(value * halves_factor);
  } else {
    store(to, value);
  }
}

/// Blocks take every gridDim.x-th tile of 8 gates (codes: 16) with their ups: first those of the
/// shared MLP, whose weights do not wait for the choice, then of all chosen experts.
template <class Weight>
__global__ void __launch_bounds__(threads, gate_blocks)
    gate_skinny_rows(const __grid_constant__ CUtensorMap gate_up,
                     const __grid_constant__ CUtensorMap shared_gate_up,
                     const __grid_constant__ SmallBatchMoe call) {
#if __CUDA_ARCH__ >= 900
  using Slabs = GateSlabs<Weight>;
  constexpr int stages = gate_stages;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][stages];
  __shared__ TileSums<warps, Slabs::groups> sums;
  __shared__ Plan plan;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  if (threadIdx.x == 0) prefetch_map(gate_up);
  Slabs queue(memory + warp * Slabs::bytes, barriers[warp]);
  auto* const parts = reinterpret_cast<float*>(memory + warps * Slabs::bytes);
  sums.open();
  constexpr int columns = Slabs::rows / 2;
  const int tokens = static_cast<int>(call.tokens), top_k = static_cast<int>(call.top_k);
  const int hidden = static_cast<int>(call.hidden), inner = static_cast<int>(call.inner);
  const int shared_inner = static_cast<int>(call.shared_inner);
  const int column_tiles = inner / columns, shared_tiles = shared_inner / columns;
  const int slabs = (hidden + Slabs::columns - 1) / Slabs::columns;
  int tiles = shared_tiles;  // and, once the choice is known, those of experts

  const auto first_row = [&](int tile) {
    return plan.firsts[(tile - shared_tiles) / column_tiles];
  };
  const auto tile_of_all = [&](int tile) {
    return plan.expert_at[first_row(tile)] * 2 * column_tiles +
           (tile - shared_tiles) % column_tiles;
  };
  int next_tile = blockIdx.x, next_slab = warp, next_of_all = 0, requested = 0;
  const auto request = [&] {
    if (next_tile >= tiles) return;
    const int column = next_slab * Slabs::columns;
    if (next_tile < shared_tiles) {
      queue.request(shared_gate_up, column, next_tile);
    } else {
      queue.request(gate_up, column, next_of_all);
    }
    next_slab += warps;
    if (next_slab < slabs) return;
    next_slab = warp;
    next_tile += gridDim.x;
    if (next_tile >= shared_tiles && next_tile < tiles) next_of_all = tile_of_all(next_tile);
  };
  if (warp < slabs) {
    for (; requested < stages && next_tile < shared_tiles; ++requested) request();
  }
  wait_for_kernels_before();
  // Only now, so that the next kernel finds everything written before this one.
  let_next_kernel_start();
  plan.make(call);
  tiles += column_tiles * plan.active;
  if (static_cast<int>(blockIdx.x) >= tiles || warp >= slabs) return;

  const auto row_of = [&](int tile) -> const bf16* {
    if (tile >= tiles) return nullptr;
    const int first = tile < shared_tiles ? 0 : first_row(tile);
    if (own >= (tile < shared_tiles ? tokens : plan.rows_at[first])) return nullptr;
    const bool in_order = tokens == 1 || tile < shared_tiles;
    const int token = in_order ? own : call.source[first + own] / top_k;
    return static_cast<const bf16*>(call.x) + std::int64_t{token} * hidden;
  };
  const bf16* row = row_of(blockIdx.x);
  uint4 x[Slabs::x_units];
  const bf16* held_row = row;  // which and what part of it x is
  int held_slab = warp;
  bool is_bf16 = true;  // x has not become halves, which codes are multiplied with
  // Requested before the weights, which are many more bytes.
  read_x<Weight>(row, warp * Slabs::columns, hidden, x);
  if (next_tile >= shared_tiles && next_tile < tiles) next_of_all = tile_of_all(next_tile);
  for (; requested < stages; ++requested) request();
  const auto hold_x = [&](int slab) {
    if (row != held_row || slab != held_slab) {
      read_x<Weight>(row, slab * Slabs::columns, hidden, x);
      held_row = row;
      held_slab = slab;
      is_bf16 = true;
    }
    if constexpr (Slabs::is_coded) {
      if (!is_bf16) return;
#pragma unroll
      for (uint4& unit : x) unit = halves_of(unit);
      is_bf16 = false;
    }
  };
  int done = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++done) {
    float even[4 * Slabs::groups] = {}, odd[4 * Slabs::groups] = {};
    const bool is_shared = tile < shared_tiles;
    const int first = is_shared ? 0 : first_row(tile), width = is_shared ? shared_inner : inner;
    const int column = (is_shared ? tile : (tile - shared_tiles) % column_tiles) * columns;
    // A lane's columns are one. Nothing waits for the scales before the sums are there.
    float gate_scale = 1.0F, up_scale = 1.0F;
    if constexpr (Slabs::is_coded) {
      const float* const scales =
          (is_shared ? call.shared_gate_up_scales
                     : call.gate_up_scales + std::int64_t{plan.expert_at[first]} * 2 * inner) +
          column + lane % columns;
      gate_scale = scales[0];
      up_scale = scales[width];
    }
    const bf16* const row_after = row_of(tile + gridDim.x);
    for (int slab = warp; slab < slabs; slab += warps) {
      hold_x(slab);
      queue.wait();
      queue.multiply(x, hidden - slab * Slabs::columns, even, odd);
      queue.release();
      request();
    }
    row = row_after;
    sums.add(parts, tokens, done, min(warps, slabs), even, odd, [&](const auto& sum) {
      const int rows = is_shared ? tokens : plan.rows_at[first];
      auto* const to = static_cast<bf16*>(is_shared ? call.shared_activated : call.activated);
      for (int i = lane; i < columns * rows; i += 32) {
        const int in_tile = i % columns, of = i / columns;
        const float gate = sum(in_tile, of) * (gate_scale * of_sums<Weight>);
        store_activated(
            to + std::int64_t{first + of} * width + column + in_tile,
            fast_silu(gate) * (sum(in_tile + columns, of) * (up_scale * of_sums<Weight>)),
            Slabs::is_coded);
      }
    });
  }
#endif
}

#if __CUDA_ARCH__ >= 900
/// One column of a token's weighted sum of its experts' outputs, in the order of choice, and of the
/// `shared` parts. `parts` [assignments][16][tokens], indexed by an expert's first row; those of
/// the shared parts follow the choices'.
__device__ __forceinline__ float weighted_sum(const Plan& plan, const float* parts, int tokens,
                                              int top_k, int shared, int token, int column) {
  float sum = 0.0F;
  bool first = true;
#pragma unroll 8
  for (int pair = token * top_k; pair < (token + 1) * top_k; ++pair) {
    const int of = plan.row_of_assignment[pair];
    const int there = max(of, 0);  // also an absent one is read, at once with other pairs
    const int of_expert = plan.first_of[there];
    const float value = parts[(of_expert * slab_rows + column) * tokens + there - of_expert];
    if (of < 0) continue;
    sum = first ? value * plan.weights[pair] : fmaf(value, plan.weights[pair], sum);
    first = false;
  }
  for (int part = 0; part < shared; ++part) {
    const int row = tokens * (top_k + part);
    sum += parts[(row * slab_rows + column) * tokens + token];
  }
  return sum;
}
#endif

/// Grid: tiles of 16 columns of `out`. A warp has every eighth of the shared parts and experts.
/// Launched only after gate_skinny_rows: what that kernel waited for is ready when this one begins,
/// so weights are loaded before the gates are done.
template <class Weight, class Out>
__global__ void __launch_bounds__(threads, 1)
    add_few_rows(const __grid_constant__ CUtensorMap down,
                 const __grid_constant__ CUtensorMap shared_down,
                 const __grid_constant__ SmallBatchMoe call, Out* out) {
#if __CUDA_ARCH__ >= 900
  using Slabs = DownSlabs<Weight>;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[warps][down_stages];
  __shared__ Plan plan;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
  if (threadIdx.x == 0) prefetch_map(down);
  Slabs queue(memory + warp * Slabs::bytes, barriers[warp]);
  auto* const parts = reinterpret_cast<float*>(memory + warps * Slabs::bytes);
  let_next_kernel_start();
  plan.make(call);
  const int tokens = static_cast<int>(call.tokens), top_k = static_cast<int>(call.top_k);
  const int hidden = static_cast<int>(call.hidden), inner = static_cast<int>(call.inner);
  const int slabs = (inner + Slabs::columns - 1) / Slabs::columns;
  const int shared_inner = static_cast<int>(call.shared_inner), shared = shared_inner / inner;
  const int ranks = shared + plan.active;  // the shared parts, then the experts
  const auto first_row = [&](int rank) {
    return rank < shared ? tokens * (top_k + rank) : plan.firsts[rank - shared];
  };
  int next_rank = warp, next_slab = 0;
  const auto request = [&] {
    if (next_rank >= ranks) return;
    const int column = next_slab * Slabs::columns, tile = static_cast<int>(blockIdx.x);
    if (next_rank < shared) {
      queue.request(shared_down, next_rank * inner + column, tile);
    } else {
      const int expert = plan.expert_at[first_row(next_rank)];
      queue.request(down, column, expert * (hidden / slab_rows) + tile);
    }
    if (++next_slab < slabs) return;
    next_slab = 0;
    next_rank += warps;
  };
  // The scales of this lane's rows, before the weights, behind which they would arrive.
  const auto scales_of = [&](int rank) -> float2 {
    if constexpr (!Slabs::is_coded) return {1.0F, 1.0F};
    if (rank >= ranks) return {};
    const float* const scales =
        (rank < shared
             ? call.shared_down_scales
             : call.down_scales + std::int64_t{plan.expert_at[first_row(rank)]} * hidden) +
        blockIdx.x * slab_rows + own;
    return {scales[0], scales[8]};
  };
  float2 scales = scales_of(warp);
#pragma unroll
  for (int i = 0; i < down_stages; ++i) request();

  const auto row_of = [&](int rank) -> const bf16* {
    if (rank >= ranks) return nullptr;
    if (rank < shared) {
      const auto* const row = static_cast<const bf16*>(call.shared_activated) + rank * inner;
      return own < tokens ? row + own * shared_inner : nullptr;
    }
    const int first = first_row(rank);
    if (own >= plan.rows_at[first]) return nullptr;
    return static_cast<const bf16*>(call.activated) + std::int64_t{first + own} * inner;
  };
  wait_for_kernels_before();
  for (int rank = warp; rank < ranks; rank += warps) {
    const bf16* const row = row_of(rank);
    float even[4] = {}, odd[4] = {};
    for (int from = 0; from < slabs; from += down_stages) {
      // x of all stages at once: one load takes as long as all do.
      uint4 x[down_stages][Slabs::x_units];
#pragma unroll
      for (int i = 0; i < down_stages; ++i) {
        read_x<Weight>(row, (from + i) * Slabs::columns, inner, x[i]);
      }
#pragma unroll
      for (int i = 0; i < down_stages; ++i) {
        if (from + i >= slabs) break;
        queue.wait();
        queue.multiply(x[i], inner - (from + i) * Slabs::columns, even, odd);
        queue.release();
        request();
      }
    }
    const float upper = scales.x * of_sums<Weight>, lower = scales.y * of_sums<Weight>;
    scales = scales_of(rank + warps);
    float* const to = parts + first_row(rank) * slab_rows * tokens;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int of = lane % 4 * 2 + i;
      if (of >= tokens) break;
      to[own * tokens + of] = (even[i] + odd[i]) * upper;
      to[(own + 8) * tokens + of] = (even[2 + i] + odd[2 + i]) * lower;
    }
  }
  __syncthreads();
  const int token = threadIdx.x / slab_rows, column = threadIdx.x % slab_rows;
  if (token >= tokens) return;
  const float sum = weighted_sum(plan, parts, tokens, top_k, shared, token, column);
  store(out + std::int64_t{token} * hidden + blockIdx.x * slab_rows + column, sum);
#endif
}

/// Tiles of `half` rows, and as many more `other` rows later; tiles begin `step` rows apart.
template <class Weight>
bool map_tiles(const void* matrices, std::int64_t k, int half, std::int64_t other,
               std::int64_t step, std::int64_t tiles, std::uint32_t columns, CUtensorMap& map) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return make_tensor_map({.data = matrices,
                          .sizes = {size(k), size(half), 2, size(tiles), 1},
                          .strides = {size(k), size(other * k), size(step * k), size(step * k)},
                          .box = {columns, static_cast<std::uint32_t>(half), 2, 1, 1},
                          .swizzled = false,
                          .element_bytes = sizeof(Weight)},
                         map);
}

cudaError_t allow(const void* kernel, int shared) {
  // Set per device: each device has its own instance of the kernel.
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
}

template <class Weight>
cudaError_t launch(const SmallBatchMoe& call, cudaStream_t stream) {
  CUtensorMap gate_up, down, shared_gate_up{}, shared_down{};
  constexpr int columns = GateSlabs<Weight>::rows / 2;  // of a tile of gates
  if (!map_tiles<Weight>(call.gate_up, call.hidden, columns, call.inner, columns,
                         call.experts * 2 * call.inner / columns, GateSlabs<Weight>::columns,
                         gate_up) ||
      !map_tiles<Weight>(call.down, call.inner, 8, 8, slab_rows,
                         call.experts * call.hidden / slab_rows, DownSlabs<Weight>::columns,
                         down)) {
    return cudaErrorNotSupported;
  }
  if (call.shared_inner > 0 &&
      (!map_tiles<Weight>(call.shared_gate_up, call.hidden, columns, call.shared_inner, columns,
                          call.shared_inner / columns, GateSlabs<Weight>::columns,
                          shared_gate_up) ||
       !map_tiles<Weight>(call.shared_down, call.shared_inner, 8, 8, slab_rows,
                          call.hidden / slab_rows, DownSlabs<Weight>::columns, shared_down))) {
    return cudaErrorNotSupported;
  }
  const std::int64_t assignments = call.assignments();
  const int gate_bytes = warps * GateSlabs<Weight>::bytes +
                         TileSums<warps, GateSlabs<Weight>::groups>::bytes(call.tokens);
  cudaError_t error = allow(reinterpret_cast<const void*>(gate_skinny_rows<Weight>), gate_bytes);
  if (error != cudaSuccess) return error;
  const unsigned gate_grid = std::min(blocks_of(assignments * call.inner, columns),
                                      static_cast<unsigned>(gate_blocks * multiprocessors()));
  error = launch_early(gate_skinny_rows<Weight>,
                       {dim3(gate_grid), threads, static_cast<std::size_t>(gate_bytes)}, stream,
                       gate_up, shared_gate_up, call);
  if (error != cudaSuccess) return error;
  const auto down_bytes = static_cast<int>(warps * DownSlabs<Weight>::bytes +
                                           assignments * slab_rows * call.tokens * sizeof(float));
  with_type(call.out_dtype, [&](auto* type) {
    using Out = element<decltype(type)>;
    error = allow(reinterpret_cast<const void*>(add_few_rows<Weight, Out>), down_bytes);
    if (error != cudaSuccess) return;
    error = launch_early(
        add_few_rows<Weight, Out>,
        {dim3(blocks_of(call.hidden, slab_rows)), threads, static_cast<std::size_t>(down_bytes)},
        stream, down, shared_down, call, static_cast<Out*>(call.out));
  });
  return error;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool small_batch_moe_fits(const SmallBatchMoe& call) {
  return hopper_kernels_run() && call.tokens <= max_tokens &&
         call.inner % (call.is_coded() ? 16 : 8) == 0 && call.shared_inner % call.inner == 0 &&
         call.assignments() <= max_assignments && call.hidden % slab_rows == 0;
}

cudaError_t launch_small_batch_moe(const SmallBatchMoe& call, cudaStream_t stream) {
  return call.is_coded() ? launch<std::uint8_t>(call, stream) : launch<bf16>(call, stream);
}

}  // namespace troupe
