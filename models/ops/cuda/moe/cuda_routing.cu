// Routing. cuda_sorting.cu sorts more than a few tokens by expert.
#include <algorithm>
#include <type_traits>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "models/ops/cuda/moe/cuda_sorting.hpp"
#include "models/ops/cuda/moe/routing.cuh"
#include "models/ops/cuda/moe/small_batch_router.hpp"
#include "models/ops/unfused_moe.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr float taken = -INFINITY;

/// The largest of a warp's candidates (ties: the lower index); every lane gets it.
__device__ int warp_argmax(float value, int index) {
  for (int offset = warp / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0U, value, offset);
    const int other_index = __shfl_xor_sync(~0U, index, offset);
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
  return index;
}

/// Returns the index of the largest of `count` values (ties: the lower), and sets it to `taken`; by
/// a warp.
__device__ int take_largest(float* values, int count) {
  float best = taken;
  int index = count;
  for (int i = threadIdx.x; i < count; i += warp) {
    if (values[i] > best) {
      best = values[i];
      index = i;
    }
  }
  index = warp_argmax(best, index);
  __syncwarp();
  if (threadIdx.x == 0) values[index] = taken;
  __syncwarp();
  return index;
}

/// Removes the experts of all but the best groups from the choice.
__device__ void keep_best_groups(const Routing& routing, float* choice, float* sums) {
  const int experts = routing.experts, groups = routing.groups, size = experts / groups;
  for (int g = threadIdx.x; g < groups; g += warp) {
    float first = taken, second = lowest_choice;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = fmaxf(second, first);
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    sums[g] = routing.best_score_groups ? first : first + second;
  }
  __syncwarp();
  for (int i = 0; i < routing.top_groups; ++i) take_largest(sums, groups);
  for (int e = threadIdx.x; e < experts; e += warp) {
    if (sums[e / size] != taken) choice[e] = taken;
  }
  __syncwarp();
}

/// A warp per token. Shared memory: scores [experts], choice [experts], sums [groups].
__global__ void route_in_memory(const float* logits, const float* bias, Routing routing,
                                std::int32_t* ids, float* weights) {
  begin_early_kernel();
  extern __shared__ float shared[];
  float* scores = shared;
  float* choice = scores + routing.experts;
  float* sums = choice + routing.experts;
  const std::int64_t token = blockIdx.x;
  const float* row = logits + token * routing.experts;
  const int lane = threadIdx.x;
  if (routing.sigmoid) {
    for (int e = lane; e < routing.experts; e += warp) scores[e] = 1.0F / (1.0F + expf(-row[e]));
  } else {
    float largest = -INFINITY, total = 0.0F;
    for (int e = lane; e < routing.experts; e += warp) largest = fmaxf(largest, row[e]);
    largest = warp_max(largest);
    for (int e = lane; e < routing.experts; e += warp) {
      scores[e] = expf(row[e] - largest);
      total += scores[e];
    }
    total = warp_sum(total);
    for (int e = lane; e < routing.experts; e += warp) scores[e] /= total;
  }
  for (int e = lane; e < routing.experts; e += warp) {
    const float value = bias == nullptr ? scores[e] : scores[e] + bias[e];
    choice[e] = value > lowest_choice ? value : lowest_choice;  // for a NaN, too
  }
  __syncwarp();
  if (routing.groups > 1) {
    keep_best_groups(routing, choice, sums);
  }
  float chosen = 0.0F;
  for (int c = 0; c < routing.top_k; ++c) {
    const int best = take_largest(choice, routing.experts);
    chosen += scores[best];
    if (lane != 0) continue;
    ids[token * routing.top_k + c] = best;
    weights[token * routing.top_k + c] = scores[best];
  }
  if (lane != 0) return;
  // All sigmoids may be zero; in any other sum the addend is lost.
  const float divisor = routing.normalize ? chosen + 1e-20F : 1.0F;
  for (int c = 0; c < routing.top_k; ++c) {
    float& weight = weights[token * routing.top_k + c];
    weight = weight / divisor * routing.scale;
  }
}

/// A warp per token.
template <int per_lane>
__global__ void route_tokens_in_registers(const float* logits, const float* bias, Routing routing,
                                          std::int64_t tokens, std::int32_t* ids, float* weights) {
  begin_early_kernel();
  const int lane = threadIdx.x % warp;
  const std::int64_t token = std::int64_t{blockIdx.x} * (blockDim.x / warp) + threadIdx.x / warp;
  if (token >= tokens) return;
  const Choice choice =
      route_in_registers<per_lane>(logits + token * routing.experts, bias, routing);
  if (lane >= routing.top_k) return;
  ids[token * routing.top_k + lane] = choice.id;
  weights[token * routing.top_k + lane] = choice.weight;
}

/// Launched as one block.
template <int per_lane>
__global__ void __launch_bounds__(max_small_batch_tokens* warp)
    choose_for_few(const float* logits, const float* bias, Routing routing, int tokens,
                   SmallBatchChoices to) {
  begin_early_kernel();
  choose_in_block<per_lane>(logits, bias, routing, tokens, to);
}

Routing routing_of(const RouterOptions& options, std::int64_t experts) {
  return {static_cast<int>(experts),
          static_cast<int>(options.top_k),
          static_cast<int>(options.groups),
          static_cast<int>(options.top_groups),
          options.normalize,
          options.sigmoid,
          options.best_score_groups,
          options.scale};
}

SmallBatchChoices few_choices(const ExpertChoices& choices, const ExpertBatch& batch,
                              const Tensor& counts) {
  return {choices.ids.as<std::int32_t>(),
          choices.weights.as<float>(),
          choices.first_expert,
          static_cast<int>(counts.elements()),
          batch.offsets.as<std::int32_t>(),
          batch.source.as<std::int32_t>(),
          counts.as<std::int64_t>()};
}

/// Calls body(integral_constant of scores per lane) if a warp's registers hold a token's scores;
/// else with 0.
template <class Body>
void with_scores_a_lane(const Routing& routing, Body&& body) {
  if (routing.groups == 1 && routing.top_k <= warp && routing.experts <= 4 * warp) {
    body(std::integral_constant<int, 4>());
  } else if (routing.groups == 1 && routing.top_k <= warp && routing.experts <= 8 * warp) {
    body(std::integral_constant<int, 8>());
  } else {
    body(std::integral_constant<int, 0>());
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaMoeOps::do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                          const Tensor& ids, const Tensor& weights) {
  if (logits.empty()) return;
  const Routing routing = routing_of(options, logits[1]);
  const float* added = bias.empty() ? nullptr : bias.as<float>();
  with_scores_a_lane(routing, [&](auto per_lane) {
    cudaError_t error = cudaSuccess;
    if constexpr (per_lane == 0) {
      const std::size_t shared = (2 * logits[1] + options.groups) * sizeof(float);
      error = launch_early(route_in_memory, {dim3(static_cast<unsigned>(logits[0])), warp, shared},
                           stream(), logits.as<float>(), added, routing, ids.as<std::int32_t>(),
                           weights.as<float>());
    } else {
      constexpr int tokens_at_once = 4;
      error = launch_early(route_tokens_in_registers<per_lane>,
                           {dim3(blocks_of(logits[0], tokens_at_once)), tokens_at_once * warp},
                           stream(), logits.as<float>(), added, routing, logits[0],
                           ids.as<std::int32_t>(), weights.as<float>());
    }
    check(error, "route");
  });
}

void CudaMoeOps::do_route_and_permute(const Tensor& logits, const Tensor& bias,
                                      const RouterOptions& options, const ExpertChoices& choices,
                                      const ExpertBatch& batch, const Tensor& counts) {
  const Routing routing = routing_of(options, logits[1]);
  const auto tokens = static_cast<int>(logits[0]);
  bool chosen = false;
  with_scores_a_lane(routing, [&](auto per_lane) {
    if constexpr (per_lane > 0) {
      if (tokens < 1 || tokens > max_small_batch_tokens || deterministic_) return;
      const unsigned threads = static_cast<unsigned>(std::max(tokens, 8) * warp);
      check(launch_early(choose_for_few<per_lane>, {dim3(1), threads}, stream(), logits.as<float>(),
                         bias.empty() ? nullptr : bias.as<float>(), routing, tokens,
                         few_choices(choices, batch, counts)),
            "route_and_permute");
      chosen = true;
    }
  });
  if (chosen) return;
  route(logits, bias, options, choices.ids, choices.weights);
  check(sort_assignments(choices.ids, choices.first_expert, batch, counts, stream()),
        "route_and_permute");
}

void CudaMoeOps::do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                                 const Tensor& bias, const RouterOptions& options,
                                 const ExpertChoices& choices, const ExpertBatch& batch,
                                 const Tensor& counts) {
  const Tensor* weight = static_cast<const CudaLinear&>(router).plain();
  const SmallBatchRouter few{.weight = weight == nullptr ? nullptr : weight->data(),
                             .x = x.data(),
                             .bias = bias.empty() ? nullptr : bias.as<float>(),
                             .tokens = x[0],
                             .hidden = x[1],
                             .routing = routing_of(options, router.out_features())};
  if (!deterministic_ && weight != nullptr && x.dtype() == DType::bf16 &&
      small_batch_router_fits(few)) {
    check(launch_small_batch_router(few, few_choices(choices, batch, counts), stream()),
          "route_tokens");
    return;
  }
  routed_codes_ = dense_.codes_of(x);
  unfused_route_tokens(*this, dense_, router, x, logits, bias, options, choices, batch, counts);
  routed_ = x;
  routed_at_ = context_.uses();
}

}  // namespace troupe
