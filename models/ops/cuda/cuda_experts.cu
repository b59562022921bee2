// Routing, sorting by expert and the experts' products.
#include "models/ops/cuda/cuda_ops_class.hpp"
#include "models/ops/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warp = 32;
constexpr int sort_threads = 1024;
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

/// One block: how many pairs each local expert has, as offsets.
__global__ void count_pairs(const std::int32_t* ids, std::int64_t pairs, std::int64_t first_expert,
                            int experts, std::int32_t* offsets) {
  extern __shared__ std::int32_t counts[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
    const std::int64_t expert = ids[i] - first_expert;
    if (expert >= 0 && expert < experts) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::int32_t sum = 0;
  for (int e = 0; e < experts; ++e) {
    offsets[e] = sum;
    sum += counts[e];
  }
  offsets[experts] = sum;
}

/// A block per local expert: its pairs in order.
__global__ void place_pairs(const std::int32_t* ids, std::int64_t pairs, std::int64_t first_expert,
                            const std::int32_t* offsets, std::int32_t* source) {
  __shared__ std::int32_t before[sort_threads / warp + 1];
  const std::int64_t expert = first_expert + blockIdx.x;
  const int lane = threadIdx.x % warp, own_warp = threadIdx.x / warp;
  std::int32_t next = offsets[blockIdx.x];
  const std::int32_t end = offsets[blockIdx.x + 1];
  for (std::int64_t first = 0; first < pairs && next < end; first += sort_threads) {
    const std::int64_t i = first + threadIdx.x;
    const bool mine = i < pairs && ids[i] == expert;
    const unsigned votes = __ballot_sync(~0U, mine);
    if (lane == 0) before[own_warp + 1] = __popc(votes);
    __syncthreads();
    if (threadIdx.x == 0) {
      before[0] = 0;
      for (int w = 0; w < sort_threads / warp; ++w) before[w + 1] += before[w];
    }
    __syncthreads();
    if (mine) {
      source[next + before[own_warp] + __popc(votes & ((1U << lane) - 1U))] =
          static_cast<std::int32_t>(i);
    }
    next += before[sort_threads / warp];
    __syncthreads();  // before the next round writes
  }
}

__global__ void add_counts(const std::int32_t* offsets, int experts, std::int64_t* counts) {
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < experts) counts[e] += offsets[e + 1] - offsets[e];
}

constexpr int tile = 64;  // rows and columns of a block's part of the product
constexpr int tile_k = 16;
constexpr int product_threads = 256;  // 4 x 4 elements each

struct GroupedProduct {
  int experts;
  std::int64_t n, k, top_k;
  bool gather, scatter;
};

/// Grid: row tiles, of which an expert has ceil(rows / tile) and which are counted through all
/// experts, then column tiles; blocks beyond the last row tile have nothing to do.
template <class T, class Out>
__global__ void multiply_grouped(const T* weights, const T* x, const std::int32_t* offsets,
                                 const std::int32_t* source, GroupedProduct product, Out* out) {
  __shared__ float left[tile_k][tile + 4], right[tile_k][tile + 4];
  int expert = 0;
  std::int64_t row_tile = blockIdx.x;
  for (; expert < product.experts; ++expert) {
    const std::int64_t tiles = (offsets[expert + 1] - offsets[expert] + tile - 1) / tile;
    if (row_tile < tiles) break;
    row_tile -= tiles;
  }
  if (expert == product.experts) return;
  const std::int64_t row_begin = offsets[expert] + row_tile * tile, row_end = offsets[expert + 1];
  const std::int64_t column_begin = std::int64_t{blockIdx.y} * tile;
  const T* weight = weights + expert * product.n * product.k;
  const int thread = threadIdx.x, own_row = thread / 16 * 4, own_column = thread % 16 * 4;
  float sums[4][4] = {};
  for (std::int64_t k = 0; k < product.k; k += tile_k) {
    for (int i = thread; i < tile * tile_k; i += product_threads) {
      const std::int64_t in_k = k + i % tile_k;
      const std::int64_t row = row_begin + i / tile_k, column = column_begin + i / tile_k;
      float a = 0.0F, b = 0.0F;
      if (row < row_end && in_k < product.k) {
        const std::int64_t from = product.gather ? source[row] / product.top_k : row;
        a = load(x + from * product.k + in_k);
      }
      if (column < product.n && in_k < product.k) b = load(weight + column * product.k + in_k);
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
    const std::int64_t to = product.scatter ? source[row] : row;
    for (int c = 0; c < 4; ++c) {
      const std::int64_t column = column_begin + own_column + c;
      if (column < product.n) store(out + to * product.n + column, sums[r][c]);
    }
  }
}

template <class Out>
__global__ void combine_rows(const float* x, const float* weights, std::int64_t top_k,
                             std::int64_t width, std::int64_t count, Out* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t token = i / width, column = i % width;
  float sum = x[token * top_k * width + column] * weights[token * top_k];
  for (std::int64_t c = 1; c < top_k; ++c) {
    sum = fmaf(x[(token * top_k + c) * width + column], weights[token * top_k + c], sum);
  }
  store(out + i, sum);
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
  const std::size_t shared = (2 * logits[1] + options.groups) * sizeof(float);
  route_tokens<<<static_cast<unsigned>(logits[0]), warp, shared, stream()>>>(
      logits.as<float>(), bias.empty() ? nullptr : bias.as<float>(), routing,
      ids.as<std::int32_t>(), weights.as<float>());
  check_launch("route");
}

void CudaOps::permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
  const int experts = static_cast<int>(batch.offsets.elements() - 1);
  count_pairs<<<1, sort_threads, experts * sizeof(std::int32_t), stream()>>>(
      ids.as<std::int32_t>(), ids.elements(), first_expert, experts,
      batch.offsets.as<std::int32_t>());
  place_pairs<<<static_cast<unsigned>(experts), sort_threads, 0, stream()>>>(
      ids.as<std::int32_t>(), ids.elements(), first_expert, batch.offsets.as<std::int32_t>(),
      batch.source.as<std::int32_t>());
  check_launch("permute");
}

void CudaOps::count_rows(const ExpertBatch& batch, const Tensor& counts) {
  const int experts = static_cast<int>(counts.elements());
  add_counts<<<blocks_of(experts, 256), 256, 0, stream()>>>(batch.offsets.as<std::int32_t>(),
                                                            experts, counts.as<std::int64_t>());
  check_launch("count_rows");
}

void CudaOps::grouped_linear(const GroupedLinear& weights, const Tensor& x,
                             const ExpertBatch& batch, std::int64_t top_k, bool gather,
                             bool scatter, const Tensor& out) {
  const std::int64_t rows = batch.source.elements();
  if (rows == 0) return;
  const auto& grouped = static_cast<const CudaGroupedLinear&>(weights);
  const GroupedProduct product{static_cast<int>(grouped.experts()),
                               grouped.out_features(),
                               grouped.in_features(),
                               top_k,
                               gather,
                               scatter};
  const std::int64_t most_tiles = rows / tile + std::min<std::int64_t>(product.experts, rows);
  const dim3 grid(static_cast<unsigned>(most_tiles), blocks_of(product.n, tile));
  with_type(x.dtype(), [&](auto* type) {
    with_type(out.dtype(), [&](auto* to) {
      using T = element<decltype(type)>;
      using Out = element<decltype(to)>;
      multiply_grouped<<<grid, product_threads, 0, stream()>>>(
          static_cast<const T*>(grouped.weights().data()), static_cast<const T*>(x.data()),
          batch.offsets.as<std::int32_t>(), batch.source.as<std::int32_t>(), product,
          static_cast<Out*>(out.data()));
    });
  });
  check_launch("grouped_linear");
}

void CudaOps::combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  if (out.empty()) return;
  with_type(out.dtype(), [&](auto* type) {
    using Out = element<decltype(type)>;
    combine_rows<<<blocks_of(out.elements(), 256), 256, 0, stream()>>>(
        x.as<float>(), weights.as<float>(), weights[1], out[1], out.elements(),
        static_cast<Out*>(out.data()));
  });
  check_launch("combine");
}

}  // namespace troupe
