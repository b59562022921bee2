// The weights that rows give to their keys in attention, for one instruction set (vec.hpp).
//
// A row's scores are those of attention_kernels.hpp. A first walk over its chunks finds the maximum
// and the sum of the terms 2^(score - maximum), a second one computes the scores again and adds
// each term divided by the sum, so that no memory grows with the context. The sums of a token do
// not depend on how rows are cut into passes: rows come in order, and heads in order within a row.
#pragma once

#include "models/ops/cpu/attention_kernels.hpp"

namespace troupe::TROUPE_ISA {

/// Computes the scores of `count` rows, at most score_rows, at positions [first, first + 64) before
/// `end`, and returns the number of positions.
template <class Stored>
std::int64_t score_chunk(const AttentionJob& job, const AttentionTile& tile, int count,
                         std::int64_t first, std::int64_t end) {
  const std::int64_t seen = end - first < attention_chunk ? end - first : attention_chunk;
  const int groups = static_cast<int>((seen + 15) / 16);
  const Stored* keys[groups_per_chunk] = {};
  const std::uint16_t* scales[groups_per_chunk] = {};
  for (int g = 0; g < groups; ++g) {
    keys[g] = keys_at<Stored>(job, first + 16 * g);
    scales[g] = scales_at<Stored>(job, job.layout, job.keys, first + 16 * g);
  }
  score_keys_of<Stored, false>(job, count, tile.q, keys, scales, nothing, 0, groups, tile.scores);
  if (job.shape.soft_cap > 0.0F) {
    for (int r = 0; r < count; ++r) cap_scores(tile, r, {0, seen}, job.shape.soft_cap);
  }
  return seen;
}

/// Adds the weights of the query row `row` in `count` of the job's heads, from `head` on.
template <class Stored>
void add_row_weights(const AttentionWeightsJob& all, const AttentionTile& tile, std::int64_t row,
                     std::int64_t head, int count) {
  const AttentionJob& job = all.attention;
  const std::int64_t dim = job.shape.head_dim, end = job.first_position + row + 1;
  const F16 scale = broadcast(job.shape.scale * 1.44269504F);
  for (int r = 0; r < count; ++r) {
    const float* q = job.q + (row * job.shape.heads + job.first_head + head + r) * dim;
    for (std::int64_t d = 0; d < dim; d += 16) {
      store_up_to(tile.q + r * dim + d, load_up_to(q + d, dim - d) * scale, dim - d);
    }
    store(tile.total + r * 16, zero());
    tile.maximum[r] = -3.0e38F;
  }
  for (std::int64_t first = 0; first < end; first += attention_chunk) {
    const std::int64_t seen = score_chunk<Stored>(job, tile, count, first, end);
    for (int r = 0; r < count; ++r) softmax_row<false>(tile, r, {0, seen});
  }
  const std::int64_t kv_head = job.first_head / (job.shape.heads / job.shape.kv_heads);
  for (std::int64_t first = 0; first < end; first += attention_chunk) {
    const std::int64_t seen = score_chunk<Stored>(job, tile, count, first, end);
    for (int r = 0; r < count; ++r) {
      const F16 maximum = broadcast(tile.maximum[r]);
      const F16 inverse = broadcast(1.0F / reduce_add(load(tile.total + r * 16)));
      for (std::int64_t i = 0; i < seen; i += 16) {
        const std::int64_t position = first + i;
        const std::int64_t page =
            job.blocks[position / job.block_size] * job.shape.kv_heads + kv_head;
        float* weights = all.weights + page * job.block_size + position % job.block_size;
        const F16 terms = exp2(load(tile.scores + r * attention_chunk + i) - maximum) * inverse;
        store(weights, load(weights) + keep_first(terms, seen - i, zero()));
      }
    }
  }
}

template <class Stored>
void add_weights(const AttentionWeightsJob& job) {
  const AttentionTile tile = lay_out(job.attention.scratch, job.attention.shape.head_dim);
  for (std::int64_t row = 0; row < job.attention.rows; ++row) {
    for (std::int64_t head = 0; head < job.attention.heads; head += score_rows) {
      const std::int64_t left = job.attention.heads - head;
      add_row_weights<Stored>(job, tile, row, head,
                              static_cast<int>(left < score_rows ? left : score_rows));
    }
  }
}

void attention_weights(const AttentionWeightsJob& job) {
  with_stored(job.attention.layout.stored,
              [&](auto stored) { add_weights<decltype(stored)>(job); });
}

}  // namespace troupe::TROUPE_ISA
