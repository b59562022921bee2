// Attention of one row a sequence to a cache of codes. They are widened in registers; a key's scale
// multiplies its scores, a value's scale its terms.
#pragma once

#include "models/ops/cuda/attention/code_lanes.cuh"
#include "models/ops/cuda/attention/coded_decode_kernel.hpp"
#include "models/ops/cuda/attention/decode_work.cuh"
#include "models/ops/cuda/attention/online_softmax.cuh"
#include "models/ops/cuda/attention/page_queue.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe::cuda {

/// A block per part, KV head and `tiles` of 8 of its query heads.
template <class Keys, class Values, int dim, int tiles, int warps, int stages, int blocks>
__global__ void __launch_bounds__(warps * 32, blocks)
    attend_one_coded_row(const __grid_constant__ DecodePass pass) {
#if __CUDA_ARCH__ >= 900
  constexpr int page = attention_page, columns = tiles * decode_tile_heads;
  using Softmax = OnlineSoftmax<dim, FusibleArithmetic, CodedValueLanes<Values, dim>>;
  using Rows = CodeRows<Keys, Values, dim>;
  using Queue = PageQueue<Rows, page, warps, stages, DecodePass, DecodeWork<columns>>;
  constexpr int row_floats = dim + 8;  // of a warp's sums, that fit where its pages were
  constexpr int warp_units = stages * Queue::units;
  static_assert(columns * row_floats * sizeof(float) <= warp_units * sizeof(uint4));
  static_assert(max_decode_parts * columns * sizeof(float2) <= warps * warp_units * sizeof(uint4));
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ std::uint64_t barriers[warps][stages];
  __shared__ float2 warp_scales[warps][columns];
  __shared__ bool is_last;
  let_next_kernel_start();
  // The plan, the tables and all keys but the last have been there since before this pass.
  const DecodeWork<columns> work(pass, blockIdx.x);
  if (work.pages == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, eighth = lane / 4, fourth = lane % 4;
  Queue queue(pass, work, memory + warp * warp_units, barriers[warp]);
  int requested = 0;
  while (requested < min(stages, queue.size()) && !work.may_be_new(queue.page_of(requested))) {
    queue.request(requested++);
  }
  wait_for_kernels_before();
  while (requested < min(stages, queue.size())) queue.request(requested++);

  CodedQuery<Keys, dim> query[tiles];
  float factors[tiles][2];  // of scores, for columns 2 fourth and the next
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const int head = t * decode_tile_heads + eighth;
    query[t].read(head < work.heads ? pass.q + (work.first_head + head) * dim : nullptr, fourth);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float unit = __shfl_sync(~0U, query[t].unit, 4 * (2 * fourth + i));
      factors[t][i] = unit * (pass.scale * Keys::unit);
    }
  }
  Softmax softmax[tiles];
  for (int turn = 0; turn < queue.size(); ++turn) {
    // Rows behind the last position hold anything: the last one stands for them, at weight 0.
    const int there = work.positions_of(queue.page_of(turn));
    const int seen_from = work.first_seen(queue.page_of(turn));
    const auto* const keys = reinterpret_cast<const unsigned char*>(queue.keys(turn));
    const auto* const values = reinterpret_cast<const unsigned char*>(queue.values(turn));
    const auto key_row = [&](int position) {
      return keys + min(position, there - 1) * Rows::key_bytes;
    };
    const auto value_row = [&](int position) {
      return values + min(position, there - 1) * Rows::value_bytes;
    };
    const auto scale = [&](const unsigned char* scales, int position) {
      return __half2float(reinterpret_cast<const __half*>(scales)[min(position, there - 1)]);
    };
    queue.wait(turn);
    float scores[tiles][4] = {};
    add_code_products<Keys, dim, tiles>(key_row(eighth), key_row(eighth + 8), fourth, query,
                                        scores);
    const auto* const all_key_scales = keys + page * Rows::key_bytes;
    const auto* const all_value_scales = values + page * Rows::value_bytes;
    const float key_scales[2] = {scale(all_key_scales, eighth), scale(all_key_scales, eighth + 8)};
    CodedValues<Values, dim> coded;
    coded.read(eighth, [&](int i) { return value_row(2 * fourth + i % 2 + 8 * (i / 2)); });
    const float value_scales[2] = {scale(all_value_scales, eighth) * Values::unit,
                                   scale(all_value_scales, eighth + 8) * Values::unit};
    __syncwarp();  // all have read the page: the next may take its place
    queue.request(turn + stages);
    // Terms times their values' scales are at most 1 in magnitude, so that fp16 holds them. A scale
    // may be 0, or below.
    constexpr float least_scale = 0x1p-24F * Values::unit;
    const float above[2] = {__log2f(fmaxf(fabsf(value_scales[0]), least_scale)),
                            __log2f(fmaxf(fabsf(value_scales[1]), least_scale))};
    const auto peak = [&](float score, int half) { return score + above[half]; };
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = eighth + 8 * (i / 2);
        const bool is_seen = position >= seen_from && position < there;
        const float score = scores[t][i] * (factors[t][i % 2] * key_scales[i / 2]);
        scores[t][i] = is_seen ? capped_score(score, pass.soft_cap) : -INFINITY;
      }
      softmax[t].add_scores(scores[t], peak);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[t][i] *= value_scales[i / 2];
    }
    if constexpr (tiles == 1) {
      coded.template add<1>({CodedTerms(scores[0])}, softmax);
    } else {
      coded.template add<2>({CodedTerms(scores[0]), CodedTerms(scores[1])}, softmax);
    }
  }

  const auto warp_sums = [&](int of, int head) {
    return reinterpret_cast<float*>(memory + of * warp_units) + head * row_floats;
  };
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const int first = t * decode_tile_heads;
    softmax[t].store(work.heads - first, warp_scales[warp] + first,
                     [&](int head) { return warp_sums(warp, first + head); });
  }
  __syncthreads();
  join_warps<dim, warps>(pass, work, warp_scales, warp_sums);
  if (work.part.parts == 1) return;
  if (!is_last_item(pass.finished + work.slot(pass, 0), work.part.parts, is_last)) return;
  join_parts<dim>(pass, work, reinterpret_cast<float2*>(memory));
#endif
}

/// Bytes of a page in shared memory.
template <class Rows>
constexpr int page_bytes =
    attention_page * (Rows::key_bytes + Rows::value_bytes + 2 * Rows::scale_bytes);

/// Pages of `warps` warps of a multiprocessor that fit in its shared memory.
template <class Rows>
constexpr int stages_of(int warps) {
  constexpr int bytes = 200'704;
  return bytes / warps / page_bytes<Rows>;
}

template <class Keys, class Values, int dim, int tiles, int warps, int stages, int blocks>
cudaError_t launch_coded(const DecodePass& pass, bool early, cudaStream_t stream) {
  constexpr int bytes = warps * stages * page_bytes<CodeRows<Keys, Values, dim>>;
  const auto kernel = attend_one_coded_row<Keys, Values, dim, tiles, warps, stages, blocks>;
  // Of this thread's device: another one's kernel has its own.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const dim3 grid(static_cast<unsigned>(pass.entries * pass.row_blocks));
  if (early) return launch_early(kernel, Grid{grid, warps * 32, bytes}, stream, pass);
  kernel<<<grid, warps * 32, bytes, stream>>>(pass);
  return cudaPeekAtLastError();
}

/// Launches so many blocks of a multiprocessor at once, or fewer where registers hold no more
/// warps, with as many pages under way as its shared memory holds: 16 warps keep memory busy, of
/// large heads and of two tiles 12 fit.
template <class Keys, class Values, int dim, int tiles>
cudaError_t launch_coded(const DecodePass& pass, int blocks, bool early, cudaStream_t stream) {
  using Rows = CodeRows<Keys, Values, dim>;
  if constexpr (dim > 128 || tiles > 1) {
    constexpr int at_most_8 = stages_of<Rows>(8), at_most_12 = stages_of<Rows>(12);
    switch (blocks) {
      case 1:
        return launch_coded<Keys, Values, dim, tiles, 8, at_most_8, 1>(pass, early, stream);
      case 2:
        return launch_coded<Keys, Values, dim, tiles, 4, at_most_8, 2>(pass, early, stream);
      default:
        return launch_coded<Keys, Values, dim, tiles, 4, at_most_12, 3>(pass, early, stream);
    }
  } else {
    constexpr int stages = stages_of<Rows>(16);
    switch (blocks) {
      case 1:
        return launch_coded<Keys, Values, dim, tiles, 16, stages, 1>(pass, early, stream);
      case 2:
        return launch_coded<Keys, Values, dim, tiles, 8, stages, 2>(pass, early, stream);
      default:
        return launch_coded<Keys, Values, dim, tiles, 4, stages, 4>(pass, early, stream);
    }
  }
}

template <class Keys, class Values, int dim>
cudaError_t launch_coded(const DecodePass& pass, int blocks, bool early, cudaStream_t stream) {
  if constexpr (decode_columns(dim, max_decode_columns) > decode_tile_heads) {
    if (pass.group > decode_tile_heads)
      return launch_coded<Keys, Values, dim, 2>(pass, blocks, early, stream);
  }
  return launch_coded<Keys, Values, dim, 1>(pass, blocks, early, stream);
}

template <class Keys, class Values>
cudaError_t launch_coded(const DecodePass& pass, int blocks, int head_dim, bool early,
                         cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch_coded<Keys, Values, 64>(pass, blocks, early, stream);
    case 80:
      return launch_coded<Keys, Values, 80>(pass, blocks, early, stream);
    case 96:
      return launch_coded<Keys, Values, 96>(pass, blocks, early, stream);
    case 112:
      return launch_coded<Keys, Values, 112>(pass, blocks, early, stream);
    case 128:
      return launch_coded<Keys, Values, 128>(pass, blocks, early, stream);
    case 192:
      return launch_coded<Keys, Values, 192>(pass, blocks, early, stream);
    case 256:
      return launch_coded<Keys, Values, 256>(pass, blocks, early, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

// Each kind of codes is compiled in a file of its own (coded_decode_*.cu).
extern template cudaError_t launch_coded<Int8Code, Int8Code>(const DecodePass&, int, int, bool,
                                                             cudaStream_t);
extern template cudaError_t launch_coded<Fp8Code, Fp8Code>(const DecodePass&, int, int, bool,
                                                           cudaStream_t);
extern template cudaError_t launch_coded<Int4Code, Int4Code>(const DecodePass&, int, int, bool,
                                                             cudaStream_t);
extern template cudaError_t launch_coded<Int8Code, Int4Code>(const DecodePass&, int, int, bool,
                                                             cudaStream_t);

}  // namespace troupe::cuda
