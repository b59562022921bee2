// Removes entries from sequences' caches (KvCompaction): what is kept moves to the first entries.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "models/ops/cuda/attention/block_top_k.cuh"
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
  T* values;       ///< null in a latent cache
  float* weights;  ///< null if the cache has none
  int kv_heads, block_size, head_dim, latent, first_kept, last_kept, pooling;
  const float* rope;  ///< [positions, head_dim - latent], or null: keys are not turned
  /// [sequences, kv_heads, most_chosen]: the entries that are kept between the first and the last
  /// ones, ascending; null: all those before the last ones that are dropped.
  std::int32_t* chosen;
  int most_chosen;
};

/// What a block does: a KV head of a sequence.
template <class T>
struct Head {
  const Compaction<T>& all;
  CompactedSequence sequence;
  int kv_head;
  std::int32_t* chosen;  ///< its part of Compaction::chosen

  __device__ explicit Head(const Compaction<T>& cache)
      : all(cache),
        sequence(cache.sequences[blockIdx.x / cache.kv_heads]),
        kv_head(static_cast<int>(blockIdx.x) % cache.kv_heads),
        chosen(cache.chosen == nullptr
                   ? nullptr
                   : cache.chosen + std::int64_t{blockIdx.x} * cache.most_chosen) {}

  __device__ int dropped() const { return sequence.entries - sequence.kept; }
  /// The number of entries of `chosen`.
  __device__ int choices() const { return sequence.kept - all.first_kept - all.last_kept; }
  /// The entry before, of an entry that moves.
  __device__ int source_of(int entry) const {
    const int index = entry - all.first_kept;
    return chosen != nullptr && index < choices() ? chosen[index] : entry + dropped();
  }
  /// An index into pages of one number an entry.
  __device__ std::int64_t slot_of(int entry) const {
    const std::int64_t block = all.block_tables[sequence.block_offset + entry / all.block_size];
    return (block * all.kv_heads + kv_head) * all.block_size + entry % all.block_size;
  }
  /// An entry's averaged weight (KvCompaction::pooling).
  __device__ float weight(int entry) const {
    const int begin = all.first_kept, end = sequence.entries - all.last_kept;
    const int last = min(entry + all.pooling / 2, end - 1);
    float sum = 0.0F;
    for (int i = max(entry - all.pooling / 2, begin); i <= last; ++i) {
      sum += all.weights[slot_of(i)];
    }
    return sum / static_cast<float>(all.pooling);
  }
};

/// Chooses the entries with the largest weights, of equals the earlier ones.
template <class T>
__global__ void __launch_bounds__(threads) choose_entries(Compaction<T> cache) {
  const Head<T> head(cache);
  const int choices = head.choices();
  if (choices <= 0) return;
  find_top_k<threads>(
      cache.first_kept, head.sequence.entries - cache.last_kept, choices,
      [&](int entry) { return ordered_bits(head.weight(entry)); },
      [&](int place, int entry) { head.chosen[place] = entry; });
}

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

/// A block moves the keys and weights (blockIdx.y 0) or the values of a sequence's KV head, a tile
/// of entries at a time in rising order: a tile is read before any of it is written, and what is
/// written lies before all that is read later.
template <class T>
__global__ void __launch_bounds__(threads) compact_entries(Compaction<T> cache) {
  const Head<T> head(cache);
  const bool is_key = blockIdx.y == 0;
  T* const pages = is_key ? cache.keys : cache.values;
  const int pairs = cache.head_dim / 2;
  const int tile = threads / pairs, own = static_cast<int>(threadIdx.x);
  const Pair pair = pair_of(own % pairs, is_key ? cache.latent : 0, cache.head_dim);
  float cosine = 1.0F, sine = 0.0F;
  if (is_key && cache.rope != nullptr && pair.angle >= 0) {
    const int width = cache.head_dim - cache.latent;
    const float* turn = cache.rope + std::int64_t{head.dropped()} * width;
    // The table may have a factor, which a rotation has not.
    const float factor = rsqrtf(turn[pair.angle] * turn[pair.angle] +
                                turn[width / 2 + pair.angle] * turn[width / 2 + pair.angle]);
    cosine = turn[pair.angle] * factor;
    sine = turn[width / 2 + pair.angle] * factor;
  }
  for (int begin = cache.first_kept; begin < head.sequence.kept; begin += tile) {
    const int to = begin + own / pairs;
    const bool moves = own < tile * pairs && to < head.sequence.kept;
    const bool moves_weight = moves && is_key && cache.weights != nullptr && own % pairs == 0;
    float a = 0.0F, b = 0.0F, weight = 0.0F;
    if (moves) {
      const std::int64_t from = head.slot_of(head.source_of(to));
      a = load(pages + from * cache.head_dim + pair.first);
      b = load(pages + from * cache.head_dim + pair.second);
      if (moves_weight) weight = cache.weights[from];
    }
    __syncthreads();
    if (moves) {
      const std::int64_t slot = head.slot_of(to);
      T* const moved = pages + slot * cache.head_dim;
      store(moved + pair.first, a * cosine + b * sine);
      store(moved + pair.second, b * cosine - a * sine);
      if (moves_weight) cache.weights[slot] = weight;
    }
    __syncthreads();
  }
}

template <class T>
void launch(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
            const KvLayer& cache, std::int32_t* chosen, std::int64_t most_chosen,
            cudaStream_t stream) {
  const Compaction<T> all{
      .sequences = static_cast<const CompactedSequence*>(compaction.device_sequences.data()),
      .block_tables = compaction.block_tables.as<std::int32_t>(),
      .keys = static_cast<T*>(cache.keys.data()),
      .values = static_cast<T*>(cache.values.data()),
      .weights = static_cast<float*>(cache.weights.data()),
      .kv_heads = static_cast<int>(shape.kv_heads),
      .block_size = compaction.block_size,
      .head_dim = static_cast<int>(shape.head_dim),
      .latent = static_cast<int>(shape.latent),
      .first_kept = static_cast<int>(compaction.first_kept),
      .last_kept = static_cast<int>(compaction.last_kept),
      .pooling = static_cast<int>(compaction.pooling),
      .rope = compaction.turns_keys ? rope.as<float>() : nullptr,
      .chosen = chosen,
      .most_chosen = static_cast<int>(most_chosen)};
  const auto heads = static_cast<unsigned>(compaction.device_sequences[0] * shape.kv_heads);
  if (chosen != nullptr) choose_entries<<<heads, threads, 0, stream>>>(all);
  compact_entries<<<dim3(heads, cache.values.empty() ? 1 : 2), threads, 0, stream>>>(all);
}

}  // namespace
}  // namespace cuda

std::int32_t* CudaAttentionOps::choices_for(std::int64_t entries) {
  if (choices_->elements() < entries) {
    auto room = context_.allocate_unset(DType::i32, {2 * entries});
    if (!room.ok()) {
      check(room.error());
      return nullptr;
    }
    check(context_.synchronize());  // the memory before may be in use
    choices_ = *std::move(room);
  }
  return choices_->as<std::int32_t>();
}

void CudaAttentionOps::do_compact(const KvCompaction& compaction, const AttentionShape& shape,
                                  const Tensor& rope, const KvLayer& cache) {
  require(!compaction.by_weight || !compaction.turns_keys,
          "keys that are kept by weight move by different distances, and are not turned");
  std::int32_t* chosen = nullptr;
  std::int64_t most_chosen = 0;
  if (compaction.by_weight) {
    for (const CompactedSequence& sequence : compaction.sequences) {
      most_chosen =
          std::max(most_chosen, sequence.kept - compaction.first_kept - compaction.last_kept);
    }
    chosen = choices_for(std::max<std::int64_t>(most_chosen, 1) * shape.kv_heads *
                         std::ssize(compaction.sequences));
    if (chosen == nullptr) return;
  }
  cuda::with_type(cache.keys.dtype(), [&](auto* stored) {
    cuda::launch<cuda::element<decltype(stored)>>(compaction, shape, rope, cache, chosen,
                                                  most_chosen, stream());
  });
  check_launch("compact");
}

}  // namespace troupe
