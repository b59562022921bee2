// Sums the attention that tokens receive from observed rows (AttentionOps::accumulate_weights). Two
// kernels compute the scores, one for each row's softmax, one for the sums of each token. The sums
// have the same bits in any pass: scores are sums over ascending elements, softmaxes are taken over
// tiles of absolute entries, and a token's terms are added up row after row, head after head.
#include <algorithm>
#include <cstdint>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "runtime/base/invariant.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = 256;
constexpr int tile_keys = 64;
constexpr int tile_elements = 32;  ///< of a head, in shared memory at a time
/// Threads with the same key in a tile share its queries among them.
constexpr int threads_of_key = threads / tile_keys;

/// Queries and a cache, on the device. A query is an observed row's head; those of a sequence and
/// KV head are counted row after row, head after head.
template <class T, class Stored>
struct Observation {
  const T* q;  ///< [rows, heads, head_dim]
  const Stored* keys;
  float* weights;
  float2* softmaxes;  ///< [rows, heads]: a query's largest score, and the sum of its terms
  const SequenceSpan* spans;
  const std::int32_t* observed_rows;  ///< of each span
  const std::int32_t* block_tables;
  int heads, kv_heads, head_dim, block_size;
  float scale, soft_cap;

  __device__ int group() const { return heads / kv_heads; }
};

/// The queries of one sequence and KV head.
template <class T, class Stored>
struct Queries {
  const Observation<T, Stored>& all;
  SequenceSpan span;
  int kv_head;
  int count;      ///< of queries
  int first_row;  ///< of the observed ones, in the batch
  int first_entry;

  __device__ Queries(const Observation<T, Stored>& of, int sequence, int head)
      : all(of), span(of.spans[sequence]), kv_head(head) {
    const int rows = of.observed_rows[sequence], skipped = span.rows - rows;
    count = rows * of.group();
    first_row = span.first_row + skipped;
    first_entry = span.first_position + skipped;
  }
  __device__ int entries() const { return span.first_position + span.rows; }
  /// The entry of a query's own token, the last one that it sees.
  __device__ int entry_of(int query) const { return first_entry + query / all.group(); }
  /// Its place among all queries of the batch.
  __device__ std::int64_t place_of(int query) const {
    return std::int64_t{first_row + query / all.group()} * all.heads + kv_head * all.group() +
           query % all.group();
  }
  /// The cache's page and offset of an entry: an index into pages of one number an entry.
  __device__ std::int64_t slot_of(int entry) const {
    const std::int64_t block = all.block_tables[span.block_offset + entry / all.block_size];
    return (block * all.kv_heads + kv_head) * all.block_size + entry % all.block_size;
  }
};

/// The scores of `tile_queries` queries with 64 entries.
template <int tile_queries>
struct ScoreTile {
  static constexpr int queries_of_thread = tile_queries / threads_of_key;

  alignas(16) float q[tile_queries][tile_elements + 4];
  float keys[tile_keys][tile_elements + 1];
  float scores[tile_queries][tile_keys];

  /// Computes the scores of queries from `first_query` on with entries from `first_entry` on. Those
  /// that a query does not see are -infinity. All threads call it, and may read `scores` after.
  template <class T, class Stored>
  __device__ void compute(const Queries<T, Stored>& queries, int first_query, int first_entry) {
    const auto& all = queries.all;
    const int key = static_cast<int>(threadIdx.x) % tile_keys;
    const int first = static_cast<int>(threadIdx.x) / tile_keys * queries_of_thread;
    float sums[queries_of_thread] = {};
    for (int begin = 0; begin < all.head_dim; begin += tile_elements) {
      __syncthreads();
      load_elements(queries, first_query, first_entry, begin);
      __syncthreads();
      for (int d = 0; d < tile_elements; d += 4) {
        const float k0 = keys[key][d], k1 = keys[key][d + 1], k2 = keys[key][d + 2],
                    k3 = keys[key][d + 3];
#pragma unroll
        for (int i = 0; i < queries_of_thread; ++i) {
          const float4 part = *reinterpret_cast<const float4*>(&q[first + i][d]);
          sums[i] = fmaf(part.x, k0, sums[i]);
          sums[i] = fmaf(part.y, k1, sums[i]);
          sums[i] = fmaf(part.z, k2, sums[i]);
          sums[i] = fmaf(part.w, k3, sums[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < queries_of_thread; ++i) {
      const int query = first_query + first + i;
      float score = sums[i] * all.scale;
      if (all.soft_cap > 0.0F) score = all.soft_cap * tanhf(score / all.soft_cap);
      const bool sees = query < queries.count && first_entry + key <= queries.entry_of(query);
      scores[first + i][key] = sees ? score : -INFINITY;
    }
    __syncthreads();
  }

 private:
  /// Loads elements [begin, begin + 32) of the queries and keys; 0 where there are none.
  template <class T, class Stored>
  __device__ void load_elements(const Queries<T, Stored>& queries, int first_query, int first_entry,
                                int begin) {
    const auto& all = queries.all;
    const int d = static_cast<int>(threadIdx.x) % tile_elements;
    const int first = static_cast<int>(threadIdx.x) / tile_elements;
    const bool is_inside = begin + d < all.head_dim;
    for (int i = first; i < tile_queries; i += threads / tile_elements) {
      const int query = first_query + i;
      q[i][d] = is_inside && query < queries.count
                    ? load(all.q + queries.place_of(query) * all.head_dim + begin + d)
                    : 0.0F;
    }
    for (int i = first; i < tile_keys; i += threads / tile_elements) {
      const int entry = first_entry + i;
      keys[i][d] = is_inside && entry < queries.entries()
                       ? load(all.keys + queries.slot_of(entry) * all.head_dim + begin + d)
                       : 0.0F;
    }
  }
};

template <class T, class Stored>
__global__ void clear_weights(Observation<T, Stored> all, const std::int32_t* kv_slots, int rows) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= rows * all.kv_heads) return;
  const int slot = kv_slots[index / all.kv_heads], kv_head = index % all.kv_heads;
  const std::int64_t page = std::int64_t{slot / all.block_size} * all.kv_heads + kv_head;
  all.weights[page * all.block_size + slot % all.block_size] = 0.0F;
}

/// The softmaxes of a tile of queries (blockIdx.x) of sequence blockIdx.y, KV head blockIdx.z.
template <class T, class Stored, int tile_queries>
__global__ void __launch_bounds__(threads) find_softmaxes(Observation<T, Stored> all) {
  __shared__ ScoreTile<tile_queries> tile;
  constexpr int warps = threads / 32, queries_of_warp = tile_queries / warps;
  const Queries<T, Stored> queries(all, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z));
  const int first_query = static_cast<int>(blockIdx.x) * tile_queries;
  if (first_query >= queries.count) return;
  const int last_query = min(first_query + tile_queries, queries.count) - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float largest[queries_of_warp], sums[queries_of_warp];
#pragma unroll
  for (int i = 0; i < queries_of_warp; ++i) {
    largest[i] = -INFINITY;
    sums[i] = 0.0F;
  }
  for (int entry = 0; entry <= queries.entry_of(last_query); entry += tile_keys) {
    tile.compute(queries, first_query, entry);
#pragma unroll
    for (int i = 0; i < queries_of_warp; ++i) {
      const float* scores = tile.scores[warp * queries_of_warp + i];
      const float a = scores[lane], b = scores[lane + 32];
      const float now = fmaxf(largest[i], warp_max(fmaxf(a, b)));
      if (now == -INFINITY) continue;
      sums[i] = sums[i] * expf(largest[i] - now) + warp_sum(expf(a - now) + expf(b - now));
      largest[i] = now;
    }
  }
#pragma unroll
  for (int i = 0; i < queries_of_warp; ++i) {
    const int query = first_query + warp * queries_of_warp + i;
    if (lane == 0 && query < queries.count) {
      all.softmaxes[queries.place_of(query)] = {largest[i], sums[i]};
    }
  }
}

/// Adds to the weights of tiles of entries (blockIdx.x, blockIdx.x + gridDim.x, ...) of sequence
/// blockIdx.y, KV head blockIdx.z.
template <class T, class Stored, int tile_queries>
__global__ void __launch_bounds__(threads) add_weights(Observation<T, Stored> all) {
  __shared__ ScoreTile<tile_queries> tile;
  const Queries<T, Stored> queries(all, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z));
  if (queries.count == 0) return;
  const int own = static_cast<int>(threadIdx.x);
  for (int tiles = static_cast<int>(blockIdx.x); tiles * tile_keys < queries.entries();
       tiles += static_cast<int>(gridDim.x)) {
    const int first_entry = tiles * tile_keys, entry = first_entry + own;
    const bool adds = own < tile_keys && entry < queries.entries();
    float sum = adds ? all.weights[queries.slot_of(entry)] : 0.0F;
    // Rows before the tile's first entry see none of it.
    const int unseeing = max(first_entry - queries.first_entry, 0) * all.group();
    for (int query = unseeing / tile_queries * tile_queries; query < queries.count;
         query += tile_queries) {
      tile.compute(queries, query, first_entry);
      for (int i = own / tile_keys; i < tile_queries; i += threads_of_key) {
        float& term = tile.scores[i][own % tile_keys];
        const float score = term;
        term = 0.0F;
        if (score > -INFINITY) {
          const float2 softmax = all.softmaxes[queries.place_of(query + i)];
          term = expf(score - softmax.x) / softmax.y;
        }
      }
      __syncthreads();
      if (adds) {
        for (int i = 0; i < tile_queries; ++i) sum += tile.scores[i][own];
      }
    }
    if (adds) all.weights[queries.slot_of(entry)] = sum;
  }
}

/// The shape of a batch's launches.
struct Extent {
  unsigned sequences = 0;
  std::int64_t queries = 0;  ///< of a sequence and KV head, at most
  std::int64_t entries = 0;  ///< of a sequence, at most; 0: not known
};

template <int tile_queries, class T, class Stored>
void launch(const Observation<T, Stored>& all, const Extent& extent, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(all.kv_heads);
  constexpr unsigned unknown_tiles = 16;
  const unsigned tiles = extent.entries > 0 ? blocks_of(extent.entries, tile_keys) : unknown_tiles;
  find_softmaxes<T, Stored, tile_queries>
      <<<dim3(blocks_of(extent.queries, tile_queries), extent.sequences, heads), threads, 0,
         stream>>>(all);
  add_weights<T, Stored, tile_queries>
      <<<dim3(tiles, extent.sequences, heads), threads, 0, stream>>>(all);
}

}  // namespace
}  // namespace cuda

float2* CudaAttentionOps::softmaxes_for(std::int64_t queries) {
  if (softmaxes_.empty() || softmaxes_.back()->elements() < 2 * queries) {
    auto room = context_.allocate_unset(DType::f32, {4 * queries});
    if (!room.ok()) {
      check(room.error());
      return nullptr;
    }
    softmaxes_.push_back(*std::move(room));
  }
  return static_cast<float2*>(softmaxes_.back()->data());
}

void CudaAttentionOps::do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                                             const AttentionBatch& batch, const KvLayer& cache) {
  const std::int64_t rows = q[0], group = shape.heads / shape.kv_heads;
  float2* const softmaxes =
      batch.observed_rows.empty() ? nullptr : softmaxes_for(rows * shape.heads);
  cuda::Extent extent{.sequences = static_cast<unsigned>(batch.sequences.size())};
  for (std::size_t s = 0; s < batch.observed_rows.size(); ++s) {
    const SequenceSpan& span = batch.sequences[s];
    extent.queries = std::max(extent.queries, batch.observed_rows[s] * group);
    if (!batch.graph_captured) {
      extent.entries = std::max<std::int64_t>(extent.entries, span.first_position + span.rows);
    }
  }
  cuda::with_type(q.dtype(), [&](auto* activation) {
    cuda::with_type(cache.keys.dtype(), [&](auto* stored) {
      using T = cuda::element<decltype(activation)>;
      using Stored = cuda::element<decltype(stored)>;
      const cuda::Observation<T, Stored> all{
          .q = static_cast<const T*>(q.data()),
          .keys = static_cast<const Stored*>(cache.keys.data()),
          .weights = cache.weights.as<float>(),
          .softmaxes = softmaxes,
          .spans = static_cast<const SequenceSpan*>(batch.spans.data()),
          .observed_rows = batch.device_observed_rows.as<std::int32_t>(),
          .block_tables = batch.block_tables.as<std::int32_t>(),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .block_size = batch.block_size,
          .scale = shape.scale,
          .soft_cap = shape.soft_cap};
      cuda::clear_weights<<<cuda::blocks_of(rows * shape.kv_heads, cuda::threads), cuda::threads, 0,
                            stream()>>>(all, batch.kv_slots.as<std::int32_t>(),
                                        static_cast<int>(rows));
      if (softmaxes == nullptr) return;
      // Of one row and few heads most of a large tile would be empty.
      if (extent.queries > 16) {
        cuda::launch<64>(all, extent, stream());
      } else {
        cuda::launch<8>(all, extent, stream());
      }
    });
  });
  check_launch("accumulate_weights");
}

}  // namespace troupe
