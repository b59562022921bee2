#include <algorithm>

#include "models/ops/cuda/common/cluster.cuh"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/moe/small_batch_router.hpp"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warps = 8, threads = warps * warp;
constexpr int tile_experts = 16;  // per block
constexpr int max_tokens = 8;     // one warp each
constexpr int max_blocks = 8;     // supported cluster size on all devices
constexpr int max_experts = max_blocks * tile_experts;

/// One cluster of blocks: each computes the logits of 16 experts and passes them to the first,
/// which chooses.
template <int chunks>
__global__ void __launch_bounds__(threads) route_few(SmallBatchRouter call, SmallBatchChoices to) {
  constexpr int warp_k = chunk * chunks, step_k = warp_k * warps;
  __shared__ float parts[warps][tile_experts][max_tokens];
  __shared__ float logits[max_tokens * max_experts];
  let_next_kernel_start();
  arrive_in_cluster();  // before any block writes to the first block's memory, that must have begun
  const int lane = threadIdx.x % warp, own_warp = threadIdx.x / warp, own = lane / 4;
  const int experts = call.routing.experts, hidden = static_cast<int>(call.hidden);
  const int begin = blockIdx.x * tile_experts;
  const auto* const weight = static_cast<const bf16*>(call.weight);
  const bf16* const upper = weight + std::int64_t{min(begin + own, experts - 1)} * hidden;
  const bf16* const lower = weight + std::int64_t{min(begin + own + 8, experts - 1)} * hidden;
  const int in_chunk = lane % 4 * 8;
  int at = own_warp * warp_k + in_chunk;
  FewWeights<chunks> weights;
  weights.read(upper, lower, at, hidden);
  wait_for_kernels_before();
  const bf16* const row =
      own < call.tokens ? static_cast<const bf16*>(call.x) + std::int64_t{own} * hidden : nullptr;
  float sums[4] = {};
  while (true) {
    weights.multiply(row, at, hidden, sums);
    at += step_k;
    if (at - in_chunk >= hidden) break;
    weights.read(upper, lower, at, hidden);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    parts[own_warp][own][lane % 4 * 2 + i] = sums[i];
    parts[own_warp][own + 8][lane % 4 * 2 + i] = sums[2 + i];
  }
  __syncthreads();
  wait_for_cluster();
  const int token = threadIdx.x / tile_experts, expert = threadIdx.x % tile_experts;
  if (token < call.tokens && begin + expert < experts) {
    float sum = parts[0][expert][token];
#pragma unroll
    for (int w = 1; w < warps; ++w) sum += parts[w][expert][token];
    *in_block(&logits[token * experts + begin + expert], 0) = sum;
  }
  arrive_in_cluster();
  if (blockIdx.x != 0) return;
  wait_for_cluster();
  choose_in_block<4>(logits, call.bias, call.routing, static_cast<int>(call.tokens), to);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

bool small_batch_router_fits(const SmallBatchRouter& call) {
  return hopper_kernels_run() && call.tokens >= 1 && call.tokens <= max_tokens &&
         call.hidden % 8 == 0 && call.routing.experts <= max_experts && call.routing.groups == 1 &&
         call.routing.top_k <= warp;
}

cudaError_t launch_small_batch_router(const SmallBatchRouter& call, const SmallBatchChoices& to,
                                      cudaStream_t stream) {
  const unsigned blocks = blocks_of(call.routing.experts, tile_experts);
  const auto kernel = call.hidden >= 8 * chunk * warps ? route_few<8> : route_few<4>;
  return launch_cluster_early(kernel, {dim3(blocks), threads}, stream, call, to);
}

}  // namespace troupe
