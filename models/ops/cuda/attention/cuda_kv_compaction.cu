// Removes entries from sequences' caches (KvCompaction): what is kept moves to the first entries.
#include <cstdint>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "runtime/base/invariant.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = 512;

/// A cache and its sequences, on the device.
template <class T>
struct Compaction {
  const CompactedSequence* sequences;
  const std::int32_t* block_tables;
  T* keys;
  T* values;  ///< null in a latent cache
  int kv_heads, block_size, head_dim, latent, first_kept;
  const float* rope;  ///< [positions, head_dim - latent], or null: keys are not turned
};

/// The two elements of a head that a thread moves. Pairs of the rotated part, which lie half of it
/// apart, are turned together.
struct Pair {
  int first, second;
  int angle;  ///< below 0: not rotated
};

__device__ inline Pair pair_of(int index, int latent, int head_dim) {
  const int unrotated = latent / 2;
  if (index < unrotated) return {2 * index, 2 * index + 1, -1};
  const int half = (head_dim - latent) / 2, angle = index - unrotated;
  return {latent + angle, latent + half + angle, angle};
}

/// A block moves the keys (blockIdx.y 0) or the values of a sequence's KV head, a tile of entries
/// at a time in rising order: a tile is read before any of it is written, and what is written lies
/// before all that is read later.
template <class T>
__global__ void __launch_bounds__(threads) compact_entries(Compaction<T> cache) {
  const int sequence = static_cast<int>(blockIdx.x) / cache.kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % cache.kv_heads;
  const CompactedSequence of = cache.sequences[sequence];
  const std::int32_t* blocks = cache.block_tables + of.block_offset;
  const bool is_key = blockIdx.y == 0;
  T* const pages = is_key ? cache.keys : cache.values;
  const int pairs = cache.head_dim / 2, dropped = of.entries - of.kept;
  const int tile = threads / pairs, own = static_cast<int>(threadIdx.x);
  const Pair pair = pair_of(own % pairs, is_key ? cache.latent : 0, cache.head_dim);
  const auto row = [&](int entry) {
    const std::int64_t page =
        std::int64_t{blocks[entry / cache.block_size]} * cache.kv_heads + kv_head;
    return pages + (page * cache.block_size + entry % cache.block_size) * cache.head_dim;
  };
  float cosine = 1.0F, sine = 0.0F;
  if (is_key && cache.rope != nullptr && pair.angle >= 0) {
    const int width = cache.head_dim - cache.latent;
    const float* turn = cache.rope + std::int64_t{dropped} * width;
    // The table may have a factor, which a rotation has not.
    const float factor = rsqrtf(turn[pair.angle] * turn[pair.angle] +
                                turn[width / 2 + pair.angle] * turn[width / 2 + pair.angle]);
    cosine = turn[pair.angle] * factor;
    sine = turn[width / 2 + pair.angle] * factor;
  }
  for (int begin = cache.first_kept; begin < of.kept; begin += tile) {
    const int to = begin + own / pairs;
    const bool moves = own < tile * pairs && to < of.kept;
    float a = 0.0F, b = 0.0F;
    if (moves) {
      const T* from = row(to + dropped);
      a = load(from + pair.first);
      b = load(from + pair.second);
    }
    __syncthreads();
    if (moves) {
      T* moved = row(to);
      store(moved + pair.first, a * cosine + b * sine);
      store(moved + pair.second, b * cosine - a * sine);
    }
    __syncthreads();
  }
}

template <class T>
void launch(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
            const KvLayer& cache, cudaStream_t stream) {
  const Compaction<T> all{static_cast<const CompactedSequence*>(compaction.device_sequences.data()),
                          compaction.block_tables.as<std::int32_t>(),
                          static_cast<T*>(cache.keys.data()),
                          static_cast<T*>(cache.values.data()),
                          static_cast<int>(shape.kv_heads),
                          compaction.block_size,
                          static_cast<int>(shape.head_dim),
                          static_cast<int>(shape.latent),
                          static_cast<int>(compaction.first_kept),
                          compaction.turns_keys ? rope.as<float>() : nullptr};
  const auto heads = static_cast<unsigned>(compaction.device_sequences[0] * shape.kv_heads);
  compact_entries<<<dim3(heads, cache.values.empty() ? 1 : 2), threads, 0, stream>>>(all);
}

}  // namespace
}  // namespace cuda

void CudaAttentionOps::do_compact(const KvCompaction& compaction, const AttentionShape& shape,
                                  const Tensor& rope, const KvLayer& cache) {
  require(!compaction.by_weight, "GPUs do not observe attention, so nothing is kept by it");
  if (cache.keys.dtype() == DType::f32) {
    cuda::launch<float>(compaction, shape, rope, cache, stream());
  } else {
    cuda::launch<__nv_bfloat16>(compaction, shape, rope, cache, stream());
  }
  check_launch("compact");
}

// Plans refuse what would call these.

void CudaAttentionOps::do_accumulate_weights(const Tensor& /*q*/, const AttentionShape& /*shape*/,
                                             const AttentionBatch& /*batch*/,
                                             const KvLayer& /*cache*/) {
  require(false, "GPUs do not observe attention");
}

void CudaAttentionOps::do_index_rope_store(const IndexQueries& /*index*/, const Tensor& /*key*/,
                                           const Tensor& /*rope*/, const AttentionShape& /*shape*/,
                                           const AttentionBatch& /*batch*/,
                                           const KvLayer& /*cache*/) {
  require(false, "GPUs do not compute sparse attention");
}

void CudaAttentionOps::do_attend_sparse(const Tensor& /*q*/, const IndexQueries& /*index*/,
                                        const AttentionShape& /*shape*/,
                                        const AttentionBatch& /*batch*/, const KvLayer& /*cache*/,
                                        const Tensor& /*out*/) {
  require(false, "GPUs do not compute sparse attention");
}

}  // namespace troupe
