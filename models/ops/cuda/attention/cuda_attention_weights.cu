// Sums the attention that tokens receive from observed rows (AttentionOps::accumulate_weights). Two
// kernels compute the scores, one for each row's softmax, one for the sums of each token. The sums
// have the same bits in any pass: scores are sums over ascending elements, softmaxes are taken over
// tiles of absolute entries, and a token's terms are added up row after row, head after head.
#include <algorithm>
#include <cstdint>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/score_tile.cuh"
#include "parallel/device/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = ScoreTile<8>::threads, tile_keys = ScoreTile<8>::keys;

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

/// The queries of one sequence and KV head, and its keys: a Source of a ScoreTile.
template <class T, class Stored>
struct Queries {
  const Observation<T, Stored>& all;
  SequenceSpan span;
  int kv_head;
  int elements;
  int count;      ///< of queries
  int first_row;  ///< of the observed ones, in the batch
  int first_entry;

  __device__ Queries(const Observation<T, Stored>& of, int sequence, int head)
      : all(of), span(of.spans[sequence]), kv_head(head), elements(of.head_dim) {
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

  __device__ const T* query(int index) const {
    return index < count ? all.q + place_of(index) * elements : nullptr;
  }
  __device__ const Stored* key(int entry) const {
    return entry < entries() ? all.keys + slot_of(entry) * elements : nullptr;
  }
  /// What the tile keeps of a dot product: its score; -infinity where the query does not see it.
  __device__ float operator()(int index, int entry, float dot) const {
    if (index >= count || entry > entry_of(index)) return -INFINITY;
    const float score = dot * all.scale;
    return all.soft_cap > 0.0F ? all.soft_cap * tanhf(score / all.soft_cap) : score;
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
template <class Tile, class T, class Stored>
__global__ void __launch_bounds__(threads) find_softmaxes(Observation<T, Stored> all) {
  __shared__ Tile tile;
  constexpr int tile_queries = Tile::tile_queries;
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
    tile.compute(queries, first_query, entry, queries);
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
template <class Tile, class T, class Stored>
__global__ void __launch_bounds__(threads) add_weights(Observation<T, Stored> all) {
  __shared__ Tile tile;
  constexpr int tile_queries = Tile::tile_queries;
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
      tile.compute(queries, query, first_entry, queries);
      for (int i = own / tile_keys; i < tile_queries; i += threads / tile_keys) {
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

template <class Tile, class T, class Stored>
void launch(const Observation<T, Stored>& all, const Extent& extent, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(all.kv_heads);
  constexpr unsigned unknown_tiles = 16;
  const unsigned tiles = extent.entries > 0 ? blocks_of(extent.entries, tile_keys) : unknown_tiles;
  const dim3 queries(blocks_of(extent.queries, Tile::tile_queries), extent.sequences, heads);
  find_softmaxes<Tile><<<queries, threads, 0, stream>>>(all);
  add_weights<Tile><<<dim3(tiles, extent.sequences, heads), threads, 0, stream>>>(all);
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
      cuda::with_score_tile<T, Stored>(extent.queries, shape.head_dim, [&](auto* tile) {
        cuda::launch<cuda::element<decltype(tile)>>(all, extent, stream());
      });
    });
  });
  check_launch("accumulate_weights");
}

}  // namespace troupe
