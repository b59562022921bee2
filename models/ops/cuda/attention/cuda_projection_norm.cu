// The norm over all heads of a token together, as attention_ops.hpp defines it.
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int head_threads = 128;

/// Grid: heads, tokens.
template <class T>
__global__ void square_sums_of_heads(const T* qkv, std::int64_t width, std::int64_t dim,
                                     float* sums) {
  const T* head = qkv + blockIdx.y * width + blockIdx.x * dim;
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
    const float value = load(head + i);
    squares += value * value;
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0) sums[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = squares;
}

/// The heads of queries or of keys on each rank: those from `first` on, of every `step`-th rank.
struct NormedHeads {
  std::int64_t first, count, step;
  const float* weight;  // [count * dim]
};

/// Grid: query and key heads, tokens. sums [ranks * tokens, heads].
template <class T>
__global__ void norm_heads(T* qkv, std::int64_t width, std::int64_t dim, const float* sums,
                           std::int64_t ranks, NormedHeads queries, NormedHeads keys, float eps) {
  const std::int64_t head = blockIdx.x, heads = gridDim.x, token = blockIdx.y, tokens = gridDim.y;
  const NormedHeads& own = head < queries.count ? queries : keys;
  float sum = 0.0F;
  for (std::int64_t rank = 0; rank < ranks; rank += own.step) {
    const float* of_rank = sums + (rank * tokens + token) * heads + own.first;
    for (std::int64_t i = 0; i < own.count; ++i) sum += of_rank[i];
  }
  const auto elements = static_cast<float>(ranks / own.step * own.count * dim);
  const float factor = rsqrtf(sum / elements + eps);
  T* row = qkv + token * width + head * dim;
  const float* weight = own.weight + (head - own.first) * dim;
  for (std::int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
    store(row + i, load(row + i) * factor * weight[i]);
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaAttentionOps::do_square_sums(const Tensor& qkv, const AttentionShape& shape,
                                      const Tensor& sums) {
  if (qkv.empty()) return;
  const dim3 grid(static_cast<unsigned>(sums[1]), static_cast<unsigned>(qkv[0]));
  with_type(qkv.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    square_sums_of_heads<<<grid, head_threads, 0, stream()>>>(
        static_cast<const T*>(qkv.data()), qkv[1], shape.head_dim, sums.as<float>());
  });
  check_launch("square_sums");
}

void CudaAttentionOps::do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                                           const ProjectionNorm& norm) {
  if (qkv.empty()) return;
  const dim3 grid(static_cast<unsigned>(norm.square_sums[1]), static_cast<unsigned>(qkv[0]));
  const NormedHeads queries{0, shape.heads, 1, norm.q_weight.as<float>()};
  const NormedHeads keys{shape.heads, shape.kv_heads, norm.kv_copies, norm.k_weight.as<float>()};
  with_type(qkv.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    norm_heads<<<grid, head_threads, 0, stream()>>>(static_cast<T*>(qkv.data()), qkv[1],
                                                    shape.head_dim, norm.square_sums.as<float>(),
                                                    norm.ranks, queries, keys, norm.eps);
  });
  check_launch("norm_projections");
}

}  // namespace troupe
