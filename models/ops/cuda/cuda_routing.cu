// Routing, sorting by expert, and the sum of what the experts made.
#include <algorithm>

#include "models/ops/cuda/cuda_ops_class.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warp = 32;
constexpr int sort_threads = 1024;
constexpr std::int64_t sort_shared = 48 << 10;  // bytes that every device has
constexpr std::int64_t least_sort_warps = 4;    // what is done for each expert is theirs too
constexpr int ids_at_once = 8;                  // that a thread reads
constexpr float taken = -INFINITY;
constexpr float lowest_choice = -1.0e38F;  // below every value to choose by, above `taken`

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

/// The index of the largest of `count` values (ties: the lower), which becomes `taken`; by a warp.
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

/// Takes the experts of all but the best groups out of the choice.
__device__ void keep_best_groups(int experts, int groups, int top_groups, float* choice,
                                 float* sums) {
  const int size = experts / groups;
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
    sums[g] = first + second;
  }
  __syncwarp();
  for (int i = 0; i < top_groups; ++i) take_largest(sums, groups);
  for (int e = threadIdx.x; e < experts; e += warp) {
    if (sums[e / size] != taken) choice[e] = taken;
  }
  __syncwarp();
}

struct Routing {
  int experts, top_k, groups, top_groups;
  bool normalize, sigmoid;
  float scale;
};

/// A warp per token. Shared memory: scores [experts], choice [experts], sums [groups].
__global__ void route_tokens(const float* logits, const float* bias, Routing routing,
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
    choice[e] = value > lowest_choice ? value : lowest_choice;  // a NaN, too
  }
  __syncwarp();
  if (routing.groups > 1) {
    keep_best_groups(routing.experts, routing.groups, routing.top_groups, choice, sums);
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
  // Sigmoids may all be zero; what is added is lost in any other sum.
  const float divisor = routing.normalize ? chosen + 1e-20F : 1.0F;
  for (int c = 0; c < routing.top_k; ++c) {
    float& weight = weights[token * routing.top_k + c];
    weight = weight / divisor * routing.scale;
  }
}

/// As route_tokens without groups, a warp per token with its scores in registers: expert 32 i +
/// lane of each lane is number i.
template <int per_lane>
__global__ void route_tokens_in_registers(const float* logits, const float* bias, Routing routing,
                                          std::int64_t tokens, std::int32_t* ids, float* weights) {
  begin_early_kernel();
  const int lane = threadIdx.x % warp;
  const std::int64_t token = std::int64_t{blockIdx.x} * (blockDim.x / warp) + threadIdx.x / warp;
  if (token >= tokens) return;
  const float* row = logits + token * routing.experts;
  float scores[per_lane], choice[per_lane];
  float largest = -INFINITY, total = 0.0F;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int e = i * warp + lane;
    scores[i] = e < routing.experts ? row[e] : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  largest = warp_max(largest);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    scores[i] = routing.sigmoid ? 1.0F / (1.0F + expf(-scores[i])) : expf(scores[i] - largest);
    if (i * warp + lane < routing.experts) total += scores[i];
  }
  total = warp_sum(total);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int e = i * warp + lane;
    if (!routing.sigmoid) scores[i] /= total;
    const float value = bias == nullptr || e >= routing.experts ? scores[i] : scores[i] + bias[e];
    choice[i] = value > lowest_choice ? value : lowest_choice;  // a NaN, too
    if (e >= routing.experts) choice[i] = taken;
  }
  float chosen = 0.0F, own_weight = 0.0F;
  int own_id = 0;
  for (int c = 0; c < routing.top_k; ++c) {
    float best = taken;
    int index = routing.experts;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      if (choice[i] > best) {
        best = choice[i];
        index = i * warp + lane;
      }
    }
    index = warp_argmax(best, index);
    float score = 0.0F;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      if (index != i * warp + lane) continue;
      score = scores[i];
      choice[i] = taken;
    }
    score = __shfl_sync(~0U, score, index % warp);
    chosen += score;
    if (lane == c) {
      own_weight = score;
      own_id = index;
    }
  }
  if (lane >= routing.top_k) return;
  // Sigmoids may all be zero; what is added is lost in any other sum.
  const float divisor = routing.normalize ? chosen + 1e-20F : 1.0F;
  ids[token * routing.top_k + lane] = own_id;
  weights[token * routing.top_k + lane] = own_weight / divisor * routing.scale;
}

/// The exclusive sum of totals[0 .. experts) to offsets[0 .. experts]; by one warp.
__device__ void sum_up(const std::int32_t* totals, int experts, std::int32_t* offsets) {
  const int lane = threadIdx.x % warp;
  std::int32_t before = 0;
  for (int begin = 0; begin < experts; begin += warp) {
    const int e = begin + lane;
    const std::int32_t total = e < experts ? totals[e] : 0;
    std::int32_t sum = total;
    for (int distance = 1; distance < warp; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(~0U, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (e < experts) offsets[e] = before + sum - total;
    before += __shfl_sync(~0U, sum, warp - 1);
  }
  if (lane == 0) offsets[experts] = before;
}

/// One block sorts all pairs, keeping their order within an expert: each warp counts the experts of
/// its share of the tokens, which gives places to each warp's first rows; then a lane has a token,
/// whose experts are all different, and bits tell which lanes before it have an expert too. Shared
/// memory: places and bits [warps, experts], totals [experts], offsets [experts + 1].
__global__ void __launch_bounds__(sort_threads)
    sort_pairs(const std::int32_t* ids, std::int64_t tokens, int top_k, std::int64_t first_expert,
               int experts, std::int32_t* offsets, std::int32_t* source) {
  begin_early_kernel();
  extern __shared__ std::int32_t places[];
  const int warps = blockDim.x / warp, own = threadIdx.x / warp, lane = threadIdx.x % warp;
  auto* bits = reinterpret_cast<std::uint32_t*>(places) + warps * experts + own * experts;
  std::int32_t* totals = places + 2 * warps * experts;
  std::int32_t* first = totals + experts;
  std::int32_t* mine = places + own * experts;
  for (int i = threadIdx.x; i < 2 * warps * experts; i += blockDim.x) places[i] = 0;
  __syncthreads();
  const std::int64_t share = (tokens + warps * warp - 1) / (warps * warp) * warp;
  const std::int64_t begin = own * share, end = min(begin + share, tokens);
  // Ids are read several at a time: one would wait for memory as long as all.
  const auto local = [&](std::int64_t pair, std::int64_t pairs_end) {
    const std::int64_t expert = pair < pairs_end ? ids[pair] - first_expert : -1;
    return expert < experts ? static_cast<int>(expert) : -1;
  };
  for (std::int64_t pair = begin * top_k + lane; pair < end * top_k; pair += ids_at_once * warp) {
    int found[ids_at_once];
#pragma unroll
    for (int i = 0; i < ids_at_once; ++i) found[i] = local(pair + i * warp, end * top_k);
#pragma unroll
    for (const int expert : found) {
      if (expert >= 0) atomicAdd(&mine[expert], 1);
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    std::int32_t sum = 0;
    for (int w = 0; w < warps; ++w) {
      const std::int32_t count = places[w * experts + e];
      places[w * experts + e] = sum;
      sum += count;
    }
    totals[e] = sum;
  }
  __syncthreads();
  if (own == 0) sum_up(totals, experts, first);
  __syncthreads();
  for (int i = threadIdx.x; i < warps * experts; i += blockDim.x) places[i] += first[i % experts];
  for (int e = threadIdx.x; e <= experts; e += blockDim.x) offsets[e] = first[e];
  __syncthreads();
  for (std::int64_t token = begin + lane; token - lane < end; token += warp) {
    const std::int64_t pair = token * top_k, pair_end = token < end ? pair + top_k : pair;
    const auto for_each = [&](const auto& body) {
      for (int c = 0; c < top_k; c += ids_at_once) {
        int found[ids_at_once];
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i) found[i] = local(pair + c + i, pair_end);
#pragma unroll
        for (int i = 0; i < ids_at_once; ++i) {
          if (found[i] >= 0) body(found[i], static_cast<std::int32_t>(pair + c + i));
        }
      }
    };
    for_each([&](int expert, std::int32_t) { atomicOr(&bits[expert], 1U << lane); });
    __syncwarp();
    for_each([&](int expert, std::int32_t at) {
      source[mine[expert] + __popc(bits[expert] & ((1U << lane) - 1U))] = at;
    });
    __syncwarp();
    for (int e = lane; e < experts; e += warp) {
      mine[e] += __popc(bits[e]);
      bits[e] = 0;
    }
    __syncwarp();
  }
}

__global__ void add_counts(const std::int32_t* offsets, int experts, std::int64_t* counts) {
  begin_early_kernel();
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < experts) counts[e] += offsets[e + 1] - offsets[e];
}

template <class X>
__device__ __forceinline__ void load_unit(const X* from, float (&value)[1]) {
  value[0] = load(from);
}
__device__ __forceinline__ void load_unit(const float* from, float (&values)[4]) {
  *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ void load_unit(const bf16* from, float (&values)[4]) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
  const float2 low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.x));
  const float2 high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.y));
  values[0] = low.x, values[1] = low.y, values[2] = high.x, values[3] = high.y;
}

/// Grid: tokens, and parts of their width; `unit` columns a thread.
template <int unit, class X, class Out>
__global__ void combine_rows(const X* x, const float* weights, int top_k, std::int64_t width,
                             Out* out) {
  begin_early_kernel();
  const std::int64_t token = blockIdx.x;
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * unit;
  if (column >= width) return;
  const X* from = x + token * top_k * width + column;
  float sums[unit];
  for (int c = 0; c < top_k; ++c) {
    const float weight = weights[token * top_k + c];
    float values[unit];
    load_unit(from + c * width, values);
#pragma unroll
    for (int i = 0; i < unit; ++i) {
      sums[i] = c == 0 ? values[i] * weight : fmaf(values[i], weight, sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < unit; ++i) store(out + token * width + column + i, sums[i]);
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaOps::route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                    const Tensor& ids, const Tensor& weights) {
  if (logits.empty()) return;
  const Routing routing{static_cast<int>(logits[1]),
                        static_cast<int>(options.top_k),
                        static_cast<int>(options.groups),
                        static_cast<int>(options.top_groups),
                        options.normalize,
                        options.sigmoid,
                        options.scale};
  const float* added = bias.empty() ? nullptr : bias.as<float>();
  const auto in_registers = [&](auto* kernel) {
    constexpr int tokens_at_once = 4;
    check(launch_early(kernel, {dim3(blocks_of(logits[0], tokens_at_once)), tokens_at_once * warp},
                       stream(), logits.as<float>(), added, routing, logits[0],
                       ids.as<std::int32_t>(), weights.as<float>()),
          "route");
  };
  if (routing.groups == 1 && routing.top_k <= warp && routing.experts <= 4 * warp) {
    in_registers(route_tokens_in_registers<4>);
  } else if (routing.groups == 1 && routing.top_k <= warp && routing.experts <= 8 * warp) {
    in_registers(route_tokens_in_registers<8>);
  } else {
    const std::size_t shared = (2 * logits[1] + options.groups) * sizeof(float);
    check(launch_early(route_tokens, {dim3(static_cast<unsigned>(logits[0])), warp, shared},
                       stream(), logits.as<float>(), added, routing, ids.as<std::int32_t>(),
                       weights.as<float>()),
          "route");
  }
}

void CudaOps::permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
  const std::int64_t tokens = ids[0], experts = batch.offsets.elements() - 1;
  const std::int64_t room = sort_shared / static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t most_warps =
      std::clamp<std::int64_t>((room - 2 * experts - 1) / (2 * experts), 1, sort_threads / warp);
  const std::int64_t warps = std::clamp<std::int64_t>(
      (tokens + warp - 1) / warp, std::min(least_sort_warps, most_warps), most_warps);
  const std::int64_t integers = (2 * warps + 2) * experts + 1;
  check(launch_early(sort_pairs,
                     {dim3(1), static_cast<unsigned>(warps * warp),
                      static_cast<std::size_t>(integers) * sizeof(std::int32_t)},
                     stream(), ids.as<std::int32_t>(), tokens, ids[1], first_expert, experts,
                     batch.offsets.as<std::int32_t>(), batch.source.as<std::int32_t>()),
        "permute");
}

void CudaOps::count_rows(const ExpertBatch& batch, const Tensor& counts) {
  const int experts = static_cast<int>(counts.elements());
  constexpr unsigned threads = 256;
  check(launch_early(add_counts, {dim3(blocks_of(experts, threads)), threads}, stream(),
                     batch.offsets.as<std::int32_t>(), experts, counts.as<std::int64_t>()),
        "count_rows");
}

void CudaOps::combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  if (out.empty()) return;
  with_type(x.dtype(), [&](auto* from) {
    with_type(out.dtype(), [&](auto* to) {
      using X = element<decltype(from)>;
      using Out = element<decltype(to)>;
      const auto run = [&](auto* kernel, std::int64_t unit) {
        constexpr unsigned threads = 128;
        const dim3 grid(static_cast<unsigned>(out[0]), blocks_of(out[1], unit * threads));
        check(launch_early(kernel, {grid, threads}, stream(), static_cast<const X*>(x.data()),
                           weights.as<float>(), weights[1], out[1], static_cast<Out*>(out.data())),
              "combine");
      };
      if (out[1] % 4 == 0) {
        run(combine_rows<4, X, Out>, 4);
      } else {
        run(combine_rows<1, X, Out>, 1);
      }
    });
  });
}

}  // namespace troupe
