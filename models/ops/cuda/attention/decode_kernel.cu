#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/attention/decode_lanes.cuh"
#include "models/ops/cuda/attention/page_queue.cuh"
#include "models/ops/cuda/common/mma_m16n8k16.cuh"
#include "models/ops/cuda/common/ptx_sm90.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int page = decode_page, max_heads = max_decode_group;

/// The online softmax of a warp: of the query heads 2 (lane % 4) and the next, the scores' maximum
/// and this lane's share of their total; of all heads, sums[c][w] has the elements
/// 64 c + 8 (lane / 4) + 2 w and the next, each for both heads.
template <int dim>
struct WarpSoftmax {
  static constexpr int units = dim / 64;  // 16 bytes of each of 8 lanes

  float maximum[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  float sums[units][4][4] = {};

  /// `scores`: of positions lane / 4 (two heads) and lane / 4 + 8; makes them their terms.
  __device__ void add_scores(float (&scores)[4]) {
    float now[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      now[i] = fmaxf(maximum[i], max_of_column(fmaxf(scores[i], scores[2 + i])));
    }
    if (__any_sync(~0U, now[0] > maximum[0] || now[1] > maximum[1])) {
      const float shrink[2] = {exp2f(maximum[0] - now[0]), exp2f(maximum[1] - now[1])};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        total[i] *= shrink[i];
        maximum[i] = now[i];
      }
#pragma unroll
      for (int c = 0; c < units; ++c) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[c][w][i] *= shrink[i % 2];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = exp2f(scores[i] - maximum[i % 2]);
      total[i % 2] += scores[i];
    }
  }

  /// values[i]: elements of position 2 (lane % 4) + i % 2 + 8 (i / 2).
  __device__ void add_values(const float (&terms)[4], const uint4 (&values)[4][units]) {
    const std::uint32_t low = transposed(terms[0], terms[1]), high = transposed(terms[2], terms[3]);
    constexpr unsigned even = 0x5410, odd = 0x7632;
#pragma unroll
    for (int c = 0; c < units; ++c) {
      const uint4 a = word_pairs(values[0][c], values[1][c], even),
                  b = word_pairs(values[0][c], values[1][c], odd),
                  e = word_pairs(values[2][c], values[3][c], even),
                  f = word_pairs(values[2][c], values[3][c], odd);
      mma(sums[c][0], a.x, b.x, e.x, f.x, low, high);
      mma(sums[c][1], a.y, b.y, e.y, f.y, low, high);
      mma(sums[c][2], a.z, b.z, e.z, f.z, low, high);
      mma(sums[c][3], a.w, b.w, e.w, f.w, low, high);
    }
  }

  /// To scales[head] and to the `dim` floats at sums_of(head), of each head of the group.
  template <class SumsOf>
  __device__ __forceinline__ void store(int group, float2 (&scales)[max_heads],
                                        const SumsOf& sums_of) const {
    const int lane = threadIdx.x % 32, eighth = lane / 4, fourth = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = 2 * fourth + i;
      const float all = sum_of_column(total[i]);
      if (head >= group) continue;
      if (eighth == 0) scales[head] = {maximum[i], all};
#pragma unroll
      for (int c = 0; c < units; ++c) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          float* const to = sums_of(head) + 64 * c + 8 * eighth + 2 * w;
          *reinterpret_cast<float2*>(to) = {sums[c][w][i], sums[c][w][2 + i]};
        }
      }
    }
  }
};

/// What the warps of a block, or the parts of a row, count for among all: maximum and total.
__device__ __forceinline__ float weight_of(float2 scale, float maximum) {
  return exp2f(scale.x - maximum);  // of no pages: 0
}

/// A block's part of a row for one KV head.
struct Work {
  DecodePart part;
  int kv_head, pages, pages_per_block;
  std::int64_t first_head;

  __device__ Work(const DecodePass& pass, int block)
      : part(pass.parts[block / pass.kv_heads]),
        kv_head(block % pass.kv_heads),
        pages((part.positions + page - 1) / page),
        pages_per_block(pass.pages_per_block),
        first_head((std::int64_t{part.row} * pass.kv_heads + kv_head) * pass.group) {}

  __device__ std::int64_t slot(const DecodePass& pass, int of) const {
    return std::int64_t{part.slot + of} * pass.kv_heads + kv_head;
  }
  __device__ int first_page() const { return part.first_page; }
  __device__ std::int32_t table() const { return part.table; }
  __device__ int positions_of(int page_of_part) const {
    return min(part.positions - page_of_part * page, page);
  }
  /// The first position of the page that the row sees.
  __device__ int first_seen(int page_of_part) const { return page_of_part == 0 ? part.hidden : 0; }
  /// Whether the kernel before this one may write keys of the page: the row's own, or those of a
  /// row that fills a block in this pass which this row shares, the last before its own.
  __device__ bool may_be_new(int page_of_part) const {
    return page_of_part + 1 + pages_per_block >= pages;
  }
};

/// Four elements of what warps or parts come to, each by its weight.
struct WeightedSum {
  float4 sum{};
  float total = 0.0F;

  __device__ void add(float weight, float part_total, float4 part) {
    total += weight * part_total;
    sum.x += weight * part.x;
    sum.y += weight * part.y;
    sum.z += weight * part.z;
    sum.w += weight * part.w;
  }
  __device__ void write(bf16* to) const {
    auto* const pairs = reinterpret_cast<__nv_bfloat162*>(to);
    pairs[0] = __floats2bfloat162_rn(sum.x / total, sum.y / total);
    pairs[1] = __floats2bfloat162_rn(sum.z / total, sum.w / total);
  }
};

/// Called by the whole block that ended last: puts the parts of its row together. `scales` is
/// shared memory for one of each part and head.
template <int dim>
__device__ void join_parts(const DecodePass& pass, const Work& work, float2* scales) {
  const int parts = work.part.parts, group = pass.group;
  for (int i = threadIdx.x; i < parts * group; i += blockDim.x) {
    scales[i] = __ldcg(pass.scales + work.slot(pass, i / group) * max_heads + i % group);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < group * dim / 4; i += blockDim.x) {
    const int head = i / (dim / 4), element = i % (dim / 4) * 4;
    float maximum = -INFINITY;
    for (int p = 0; p < parts; ++p) maximum = fmaxf(maximum, scales[p * group + head].x);
    WeightedSum all;
#pragma unroll 8
    for (int p = 0; p < parts; ++p) {
      const std::int64_t from = (work.slot(pass, p) * max_heads + head) * dim + element;
      const float2 scale = scales[p * group + head];
      all.add(weight_of(scale, maximum), scale.y,
              __ldcg(reinterpret_cast<const float4*>(pass.sums + from)));
    }
    all.write(pass.out + (work.first_head + head) * dim + element);
  }
}

/// Called by the whole block, of which each warp has its sums of head h at warp_sums(warp, h): the
/// row's output, or a part of it.
template <int dim, int warps, class WarpSums>
__device__ __forceinline__ void join_warps(const DecodePass& pass, const Work& work, int group,
                                           const float2 (&warp_scales)[warps][max_heads],
                                           const WarpSums& warp_sums) {
  constexpr int threads = warps * 32;
  for (int i = threadIdx.x; i < group * dim / 4; i += threads) {
    const int head = i / (dim / 4), element = i % (dim / 4) * 4;
    float maximum = -INFINITY;
#pragma unroll
    for (int w = 0; w < warps; ++w) maximum = fmaxf(maximum, warp_scales[w][head].x);
    WeightedSum all;
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      const float2 scale = warp_scales[w][head];
      all.add(weight_of(scale, maximum), scale.y,
              *reinterpret_cast<const float4*>(warp_sums(w, head) + element));
    }
    if (work.part.parts == 1) {
      all.write(pass.out + (work.first_head + head) * dim + element);
      continue;
    }
    const std::int64_t to = work.slot(pass, work.part.index) * max_heads + head;
    __stcg(reinterpret_cast<float4*>(pass.sums + to * dim + element), all.sum);
    if (element == 0) __stcg(pass.scales + to, make_float2(maximum, all.total));
  }
}

/// Called by the whole block, which has written its part of a row: whether all parts are there.
/// `is_last` is shared memory.
__device__ __forceinline__ bool is_last_part(const DecodePass& pass, const Work& work,
                                             bool& is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned last = static_cast<unsigned>(work.part.parts - 1);
    is_last = atomicInc(pass.finished + work.slot(pass, 0), last) == last;  // then it is 0 again
  }
  __syncthreads();
  return is_last;
}

/// A block per part and KV head.
template <int dim, int warps, int stages, int blocks>
__global__ void __launch_bounds__(warps * 32, blocks)
    attend_one_row(const __grid_constant__ DecodePass pass) {
#if __CUDA_ARCH__ >= 900
  using Queue = PageQueue<dim, page, warps, stages, DecodePass, Work>;
  constexpr int units = dim / 64, chunks = dim / 32, row_units = dim / 8;
  constexpr int row_floats = dim + 8;  // of a warp's sums, that fit where its pages were
  static_assert(max_heads * row_floats * sizeof(float) <= 2 * Queue::units * sizeof(uint4));
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ std::uint64_t barriers[warps][stages];
  __shared__ float2 warp_scales[warps][max_heads];
  __shared__ bool is_last;
  let_next_kernel_start();
  // The plan, the tables and all keys but the last have been there since before this pass.
  const Work work(pass, blockIdx.x);
  if (work.pages == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, eighth = lane / 4, fourth = lane % 4;
  const int group = pass.group;
  const auto warp_memory = [&](int of) { return memory + of * stages * 2 * Queue::units; };
  Queue queue(pass, work, warp_memory(warp), barriers[warp]);
  int requested = 0;
  while (requested < min(stages, queue.size()) && !work.may_be_new(queue.page_of(requested))) {
    queue.request(requested++);
  }
  wait_for_kernels_before();
  while (requested < min(stages, queue.size())) queue.request(requested++);

  uint4 query[chunks];
#pragma unroll
  for (int j = 0; j < chunks; ++j) {
    const bf16* from = pass.q + (work.first_head + eighth) * dim + (fourth + 4 * j) * 8;
    query[j] = eighth < group ? *reinterpret_cast<const uint4*>(from) : uint4{};
  }
  WarpSoftmax<dim> softmax;
  for (int turn = 0; turn < queue.size(); ++turn) {
    // Rows behind the last position hold anything: the last one stands for them, at weight 0.
    const int there = work.positions_of(queue.page_of(turn));
    const int seen_from = work.first_seen(queue.page_of(turn));
    const auto row = [&](const uint4* first, int position) {
      return first + min(position, there - 1) * row_units;
    };
    const uint4* const top = row(queue.keys(turn), eighth) + fourth;
    const uint4* const bottom = row(queue.keys(turn), eighth + 8) + fourth;
    queue.wait(turn);
    float scores[4] = {};
#pragma unroll
    for (int j = 0; j < chunks; ++j) {
      const uint4 a = top[4 * j], b = bottom[4 * j];
      mma(scores, a.x, b.x, a.y, b.y, query[j].x, query[j].y);
      mma(scores, a.z, b.z, a.w, b.w, query[j].z, query[j].w);
    }
    uint4 values[4][units];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4* const from = row(queue.values(turn), 2 * fourth + i % 2 + 8 * (i / 2)) + eighth;
#pragma unroll
      for (int c = 0; c < units; ++c) values[i][c] = from[8 * c];
    }
    __syncwarp();  // all have read the page: the next may take its place
    queue.request(turn + stages);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = eighth + 8 * (i / 2);
      const bool is_seen = position >= seen_from && position < there;
      scores[i] = is_seen ? scores[i] * pass.scale : -INFINITY;
    }
    softmax.add_scores(scores);
    softmax.add_values(scores, values);
  }

  const auto warp_sums = [&](int of, int head) {
    return reinterpret_cast<float*>(warp_memory(of)) + head * row_floats;
  };
  softmax.store(group, warp_scales[warp], [&](int head) { return warp_sums(warp, head); });
  __syncthreads();
  join_warps<dim, warps>(pass, work, group, warp_scales, warp_sums);
  if (work.part.parts == 1 || !is_last_part(pass, work, is_last)) return;
  __threadfence();
  join_parts<dim>(pass, work, reinterpret_cast<float2*>(memory));
#endif
}

template <int dim, int warps, int stages, int blocks>
cudaError_t launch(const DecodePass& pass, cudaStream_t stream) {
  constexpr int bytes = warps * stages * 2 * page * dim * static_cast<int>(sizeof(bf16));
  const auto kernel = attend_one_row<dim, warps, stages, blocks>;
  // Of this thread's device: another one's kernel has its own.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (allowed != cudaSuccess) return allowed;
  const Grid grid{dim3(static_cast<unsigned>(pass.entries * pass.kv_heads)), warps * 32, bytes};
  return launch_early(kernel, grid, stream, pass);
}

template <int dim>
cudaError_t launch(const DecodePass& pass, const DecodeLayout& layout, cudaStream_t stream) {
  switch (layout.blocks) {
    case 1:
      return launch<dim, 8, 3, 1>(pass, stream);
    case 2:
      return launch<dim, 4, 3, 2>(pass, stream);
    default:
      return launch<dim, 4, 2, 3>(pass, stream);
  }
}

}  // namespace
}  // namespace cuda

DecodeLayout DecodeLayout::fastest(std::int64_t items, int multiprocessors) {
  const double each = static_cast<double>(items) / multiprocessors;
  if (each >= 6) return {.blocks = 3, .warps = 4, .stages = 2};
  if (each >= 2.5) return {.blocks = 2, .warps = 4, .stages = 3};
  return {.blocks = 1, .warps = 8, .stages = 3};
}

cudaError_t launch_decode_attention(const DecodePass& pass, const DecodeLayout& layout,
                                    int head_dim, cudaStream_t stream) {
  return head_dim == 64 ? cuda::launch<64>(pass, layout, stream)
                        : cuda::launch<128>(pass, layout, stream);
}

}  // namespace troupe
