// Experts' GEMMs: on tensor cores where those support them (grouped_gemm.hpp).
#include <algorithm>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "models/ops/cuda/moe/grouped_gemm.hpp"
#include "models/ops/cuda/moe/small_batch_moe.hpp"
#include "models/ops/unfused_moe.hpp"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int tile = 64;  // rows and columns of a block's part of the GEMM
constexpr int tile_k = 16;
constexpr int gemm_threads = 256;  // 4 x 4 elements each

struct GroupedShape {
  int experts;
  std::int64_t n, k, top_k;
  bool gather, scatter;
};

/// GEMMs that tensor cores do not support: f32, or sizes that are not multiples of 8. Grid: row
/// tiles, ceil(rows / tile) per expert and counted through all experts, then column tiles; blocks
/// beyond the last row tile have no work.
template <class T, class Out>
__global__ void multiply_grouped(const T* weights, const T* x, const std::int32_t* offsets,
                                 const std::int32_t* source, GroupedShape gemm, Out* out) {
  __shared__ float left[tile_k][tile + 4], right[tile_k][tile + 4];
  int expert = 0;
  std::int64_t row_tile = blockIdx.x;
  for (; expert < gemm.experts; ++expert) {
    const std::int64_t tiles = (offsets[expert + 1] - offsets[expert] + tile - 1) / tile;
    if (row_tile < tiles) break;
    row_tile -= tiles;
  }
  if (expert == gemm.experts) return;
  const std::int64_t row_begin = offsets[expert] + row_tile * tile, row_end = offsets[expert + 1];
  const std::int64_t column_begin = std::int64_t{blockIdx.y} * tile;
  const T* weight = weights + expert * gemm.n * gemm.k;
  const int thread = threadIdx.x, own_row = thread / 16 * 4, own_column = thread % 16 * 4;
  float sums[4][4] = {};
  for (std::int64_t k = 0; k < gemm.k; k += tile_k) {
    for (int i = thread; i < tile * tile_k; i += gemm_threads) {
      const std::int64_t in_k = k + i % tile_k;
      const std::int64_t row = row_begin + i / tile_k, column = column_begin + i / tile_k;
      float a = 0.0F, b = 0.0F;
      if (row < row_end && in_k < gemm.k) {
        const std::int64_t from = gemm.gather ? source[row] / gemm.top_k : row;
        a = load(x + from * gemm.k + in_k);
      }
      if (column < gemm.n && in_k < gemm.k) b = load(weight + column * gemm.k + in_k);
      left[i % tile_k][i / tile_k] = a;
      right[i % tile_k][i / tile_k] = b;
    }
    __syncthreads();
#pragma unroll
    for (int in_k = 0; in_k < tile_k; ++in_k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums[r][c] = fmaf(left[in_k][own_row + r], right[in_k][own_column + c], sums[r][c]);
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    const std::int64_t row = row_begin + own_row + r;
    if (row >= row_end) return;
    const std::int64_t to = gemm.scatter ? source[row] : row;
    for (int c = 0; c < 4; ++c) {
      const std::int64_t column = column_begin + own_column + c;
      if (column < gemm.n) store(out + to * gemm.n + column, sums[r][c]);
    }
  }
}

void launch_simt_grouped_gemm(const CudaGroupedLinear& grouped, const Tensor& x,
                              const ExpertBatch& batch, std::int64_t top_k, bool gather,
                              bool scatter, const Tensor& out, cudaStream_t stream) {
  const std::int64_t rows = batch.source.elements();
  const GroupedShape gemm{static_cast<int>(grouped.experts()),
                          grouped.out_features(),
                          grouped.in_features(),
                          top_k,
                          gather,
                          scatter};
  const std::int64_t max_tiles = rows / tile + std::min<std::int64_t>(gemm.experts, rows);
  const dim3 grid(static_cast<unsigned>(max_tiles), blocks_of(gemm.n, tile));
  with_type(x.dtype(), [&](auto* type) {
    with_type(out.dtype(), [&](auto* to) {
      using T = element<decltype(type)>;
      using Out = element<decltype(to)>;
      multiply_grouped<<<grid, gemm_threads, 0, stream>>>(
          static_cast<const T*>(grouped.weights().data()), static_cast<const T*>(x.data()),
          batch.offsets.as<std::int32_t>(), batch.source.as<std::int32_t>(), gemm,
          static_cast<Out*>(out.data()));
    });
  });
}

GroupedGemm grouped_gemm_of(const CudaGroupedLinear& grouped, const Tensor& x,
                            const ExpertBatch& batch, std::int64_t top_k, const Tensor& out) {
  return {.weights = grouped.weights().data(),
          .x = x.data(),
          .out = out.data(),
          .out_dtype = out.dtype(),
          .offsets = batch.offsets.as<std::int32_t>(),
          .source = batch.source.as<std::int32_t>(),
          .assignments = batch.expected_rows > 0 ? batch.expected_rows : batch.source.elements(),
          .experts = grouped.experts(),
          .n = grouped.out_features(),
          .k = grouped.in_features(),
          .top_k = top_k};
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaMoeOps::do_grouped_linear(const GroupedLinear& weights, const Tensor& x,
                                   const ExpertBatch& batch, std::int64_t top_k, bool gather,
                                   bool scatter, const Tensor& out) {
  if (batch.source.empty()) return;
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  GroupedGemm gemm = grouped_gemm_of(grouped, x, batch, top_k, out);
  gemm.gather = gather;
  gemm.scatter = scatter;
  if (x.dtype() == DType::bf16 && grouped_gemm_fits(gemm)) {
    check(launch_grouped_gemm(gemm, stream()), "grouped_linear");
    return;
  }
  launch_simt_grouped_gemm(grouped, x, batch, top_k, gather, scatter, out, stream());
  check_launch("grouped_linear");
}

void CudaMoeOps::do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x,
                                    const ExpertBatch& batch, std::int64_t top_k,
                                    const Tensor& scratch, const Tensor& out) {
  if (batch.source.empty()) return;
  GroupedGemm gemm =
      grouped_gemm_of(static_cast<const CudaGroupedLinear&>(weights), x, batch, top_k, out);
  gemm.gather = true;
  gemm.gated = true;
  if (x.dtype() == DType::bf16 && out.dtype() == DType::bf16 && grouped_gemm_fits(gemm)) {
    check(launch_grouped_gemm(gemm, stream()), "grouped_gate_up");
    return;
  }
  unfused_grouped_gate_up(*this, dense_, weights, x, batch, top_k, scratch, out);
}

void CudaMoeOps::do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down,
                               const Tensor& x, const ExpertChoices& choices,
                               const ExpertBatch& batch, const ExpertScratch& scratch,
                               const Tensor& out) {
  if (x.empty()) return;
  const SmallBatchMoe few{
      .gate_up = static_cast<const CudaGroupedLinear&>(gate_up).weights().data(),
      .down = static_cast<const CudaGroupedLinear&>(down).weights().data(),
      .x = x.data(),
      .activated = scratch.activated.data(),
      .out = out.data(),
      .out_dtype = out.dtype(),
      .ids = choices.ids.as<std::int32_t>(),
      .weights = choices.weights.as<float>(),
      .offsets = batch.offsets.as<std::int32_t>(),
      .source = batch.source.as<std::int32_t>(),
      .first_expert = choices.first_expert,
      .tokens = x[0],
      .top_k = choices.ids[1],
      .experts = down.experts(),
      .hidden = down.out_features(),
      .inner = down.in_features()};
  if (!deterministic_ && x.dtype() == DType::bf16 && small_batch_moe_fits(few)) {
    check(launch_small_batch_moe(few, stream()), "expert_mlp");
    return;
  }
  unfused_expert_mlp(*this, gate_up, down, x, choices, batch, scratch, out);
}

}  // namespace troupe
