// Attention to the keys that a lightning indexer chooses (SparseIndex). The scores of all keys that
// a row sees are written to memory, a block chooses the largest of a row, and attention over pages
// reads the chosen keys where they are, as pages of one token.
#include <algorithm>
#include <cstdint>

#include "models/ops/cuda/attention/block_top_k.cuh"
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/score_tile.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "runtime/base/invariant.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int choice_threads = 512, elementwise_threads = 256;
/// Scores of so many keys are in memory at a time.
constexpr std::int64_t scores_at_once = std::int64_t{1} << 24;

template <class T, class Stored>
struct IndexStore {
  T* query;  ///< [tokens, heads, dim]
  const T* key;
  const float* rope;
  const std::int32_t* positions;
  const std::int32_t* slots;
  Stored* cache;
  int heads, dim, rotated;
};

/// Element `d` of x, whose first elements are rotated in halves (Su et al. 2021).
template <class T>
__device__ float rotated_element(const T* x, const float* row, int rotated, int d) {
  const int half = rotated / 2;
  if (d >= rotated) return load(x + d);
  const float a = load(x + d % half), b = load(x + half + d % half);
  const float cosine = row[d % half], sine = row[half + d % half];
  return d < half ? a * cosine - b * sine : b * cosine + a * sine;
}

/// A block is a head of a token, or behind them the token's key; a thread an element.
template <class T, class Stored>
__global__ void rotate_and_store(IndexStore<T, Stored> index) {
  const int token = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const float* row = index.rope + std::int64_t{index.positions[token]} * index.rotated;
  const int d = static_cast<int>(threadIdx.x);
  const bool is_key = head == index.heads;
  T* const query = index.query + (std::int64_t{token} * index.heads + head) * index.dim;
  const T* const from = is_key ? index.key + std::int64_t{token} * index.dim : query;
  const float value = d < index.dim ? rotated_element(from, row, index.rotated, d) : 0.0F;
  __syncthreads();  // a query's elements are read before any is written
  if (d >= index.dim) return;
  if (is_key) {
    store(index.cache + std::int64_t{index.slots[token]} * index.dim + d, value);
  } else {
    store(query + d, value);
  }
}

/// The index queries of one row, and the index keys of its sequence: a Source of a ScoreTile.
template <class T, class Stored>
struct IndexRow {
  const T* queries;  ///< [heads, dim]
  const T* weights;  ///< [heads]
  const Stored* keys;
  const std::int32_t* blocks;
  int heads, elements, block_size, seen;

  __device__ std::int64_t slot_of(int entry) const {
    return std::int64_t{blocks[entry / block_size]} * block_size + entry % block_size;
  }
  __device__ const T* query(int index) const {
    return index < heads ? queries + std::int64_t{index} * elements : nullptr;
  }
  __device__ const Stored* key(int entry) const {
    return entry < seen ? keys + slot_of(entry) * elements : nullptr;
  }
  /// A head's term of a key's score.
  __device__ float operator()(int index, int /*entry*/, float dot) const {
    return index < heads ? fmaxf(dot, 0.0F) * load(weights + index) : 0.0F;
  }
};

template <class T, class Stored>
struct IndexScores {
  const T* queries;
  const T* weights;
  const Stored* keys;
  const std::int32_t* block_tables;
  const SeenKeys* seen;
  float* scores;  ///< [rows, stride], of the rows from first_row on
  std::int32_t* slots;
  std::int64_t stride;
  int first_row, heads, dim, block_size, top_k;

  __device__ IndexRow<T, Stored> row(int index) const {
    const int row = first_row + index;
    return {queries + std::int64_t{row} * heads * dim,
            weights + std::int64_t{row} * heads,
            keys,
            block_tables + seen[row].block_offset,
            heads,
            dim,
            block_size,
            seen[row].count};
  }
};

/// The scores of 64 keys (blockIdx.x) of a row (blockIdx.y): terms are added head after head.
template <class Tile, class T, class Stored>
__global__ void __launch_bounds__(Tile::threads) score_keys(IndexScores<T, Stored> all) {
  __shared__ Tile tile;
  constexpr int keys = Tile::keys, tile_queries = Tile::tile_queries;
  const IndexRow<T, Stored> row = all.row(static_cast<int>(blockIdx.y));
  const int first = static_cast<int>(blockIdx.x) * keys, own = static_cast<int>(threadIdx.x);
  // A row that sees no more keys than it chooses needs no scores.
  if (first >= row.seen || row.seen <= all.top_k) return;
  float sum = 0.0F;
  for (int head = 0; head < row.heads; head += tile_queries) {
    tile.compute(row, head, first, row);
    if (own < keys) {
      for (int i = 0; i < tile_queries; ++i) sum += tile.scores[i][own];
    }
  }
  if (own < keys && first + own < row.seen) all.scores[blockIdx.y * all.stride + first + own] = sum;
}

/// Writes the slots of a row's (blockIdx.x) chosen keys, ascending.
template <class T, class Stored>
__global__ void __launch_bounds__(choice_threads) choose_keys(IndexScores<T, Stored> all) {
  const IndexRow<T, Stored> row = all.row(static_cast<int>(blockIdx.x));
  std::int32_t* const slots = all.slots + std::int64_t{all.first_row + blockIdx.x} * all.top_k;
  if (row.seen <= all.top_k) {
    for (int i = static_cast<int>(threadIdx.x); i < row.seen; i += choice_threads) {
      slots[i] = static_cast<std::int32_t>(row.slot_of(i));
    }
    return;
  }
  const float* const scores = all.scores + blockIdx.x * all.stride;
  find_top_k<choice_threads>(
      0, row.seen, all.top_k, [&](int entry) { return ordered_bits(scores[entry]); },
      [&](int place, int entry) { slots[place] = static_cast<std::int32_t>(row.slot_of(entry)); });
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaAttentionOps::do_index_rope_store(const IndexQueries& index, const Tensor& key,
                                           const Tensor& rope, const AttentionShape& shape,
                                           const AttentionBatch& batch, const KvLayer& cache) {
  if (key[0] == 0) return;
  const auto threads = static_cast<unsigned>((shape.index.dim + 31) / 32 * 32);
  with_type(key.dtype(), [&](auto* activation) {
    with_type(cache.index_keys.dtype(), [&](auto* stored) {
      using T = element<decltype(activation)>;
      using Stored = element<decltype(stored)>;
      const IndexStore<T, Stored> all{.query = static_cast<T*>(index.query.data()),
                                      .key = static_cast<const T*>(key.data()),
                                      .rope = rope.as<float>(),
                                      .positions = batch.positions.as<std::int32_t>(),
                                      .slots = batch.kv_slots.as<std::int32_t>(),
                                      .cache = static_cast<Stored*>(cache.index_keys.data()),
                                      .heads = static_cast<int>(shape.index.heads),
                                      .dim = static_cast<int>(shape.index.dim),
                                      .rotated = static_cast<int>(shape.head_dim - shape.latent)};
      const dim3 grid(static_cast<unsigned>(key[0]), static_cast<unsigned>(shape.index.heads + 1));
      rotate_and_store<<<grid, threads, 0, stream()>>>(all);
    });
  });
  check_launch("index_rope_store");
}

bool CudaAttentionOps::sparse_by_flashinfer(const AttentionShape& shape, DType stored,
                                            DType activation) const {
  // It splits contexts as the batch fills the device.
  return latent_attention_ != nullptr && FlashInferMla::supports(shape, stored, activation);
}

Result<void> CudaAttentionOps::plan_sparse(const AttentionShape& shape,
                                           const AttentionBatch& batch) {
  const SequenceSpan& last = batch.sequences.back();
  const std::int64_t rows = last.first_row + last.rows, wanted = rows * shape.index.top_k;
  if (chosen_slots_.empty() || chosen_slots_.back()->elements() < wanted) {
    TROUPE_TRY(DeviceTensor room, context_.allocate_unset(DType::i32, {2 * wanted}));
    chosen_slots_.push_back(std::move(room));
  }
  if (index_scores_->empty()) {
    TROUPE_TRY(index_scores_, context_.allocate_unset(DType::f32, {scores_at_once}));
  }
  TROUPE_TRY(SparseRows* const plan, sparse_rows_.of(batch, stream()));
  TROUPE_CHECK(plan->make(shape, batch, chosen_slots_.back(), stream()));
  if (!sparse_by_flashinfer(shape, dtype_, dtype_)) return {};
  return latent_attention_->plan(shape, plan->attended(batch), stream());
}

void CudaAttentionOps::choose_keys(const IndexQueries& index, const AttentionShape& shape,
                                   const AttentionBatch& batch, const KvLayer& cache,
                                   const SparseRows& rows) {
  const std::int64_t stride = rows.most_seen();
  require(stride <= scores_at_once, "the scores of a row fit");
  const std::int64_t at_once = scores_at_once / stride;
  with_type(index.query.dtype(), [&](auto* activation) {
    with_type(cache.index_keys.dtype(), [&](auto* stored) {
      using T = element<decltype(activation)>;
      using Stored = element<decltype(stored)>;
      IndexScores<T, Stored> all{.queries = static_cast<const T*>(index.query.data()),
                                 .weights = static_cast<const T*>(index.weights.data()),
                                 .keys = static_cast<const Stored*>(cache.index_keys.data()),
                                 .block_tables = batch.block_tables.as<std::int32_t>(),
                                 .seen = rows.seen(),
                                 .scores = index_scores_->as<float>(),
                                 .slots = rows.slots().as<std::int32_t>(),
                                 .stride = stride,
                                 .first_row = 0,
                                 .heads = static_cast<int>(shape.index.heads),
                                 .dim = static_cast<int>(shape.index.dim),
                                 .block_size = batch.block_size,
                                 .top_k = static_cast<int>(shape.index.top_k)};
      for (std::int64_t first = 0; first < rows.entries(); first += at_once) {
        all.first_row = static_cast<int>(first);
        const auto count = static_cast<unsigned>(std::min(at_once, rows.entries() - first));
        if (rows.most_seen() > shape.index.top_k) {
          with_score_tile<T, Stored>(shape.index.heads, shape.index.dim, [&](auto* tile) {
            using Tile = element<decltype(tile)>;
            const dim3 grid(blocks_of(rows.most_seen(), Tile::keys), count);
            score_keys<Tile><<<grid, Tile::threads, 0, stream()>>>(all);
          });
        }
        cuda::choose_keys<<<count, choice_threads, 0, stream()>>>(all);
      }
    });
  });
  check_launch("the choice of keys");
}

void CudaAttentionOps::do_attend_sparse(const Tensor& q, const IndexQueries& index,
                                        const AttentionShape& shape, const AttentionBatch& batch,
                                        const KvLayer& cache, const Tensor& out) {
  if (q.empty()) return;
  const Result<const SparseRows*> rows = sparse_rows_.made_for(batch);
  if (!rows.ok()) return check(Result<void>(rows.error()));
  choose_keys(index, shape, batch, cache, **rows);
  const AttentionBatch attended = (*rows)->attended(batch);
  if (sparse_by_flashinfer(shape, cache.keys.dtype(), q.dtype())) {
    return check(latent_attention_->attend(q, shape, attended, cache, out, stream()));
  }
  attention_of_any_shape(q, shape, attended, cache, out);
}

}  // namespace troupe
