// Causal attention of a few query rows over one KV head's pages, for one instruction set (vec.hpp).
//
// Online softmax (Milakov & Gimelshein 2018) over chunks of 64 absolute positions, from position 0.
// For one pair of query row and head ("row" below) the arithmetic is: scores are one chain of FMAs
// over head_dim, of q * scale * log2(e); per chunk the maximum, alpha = 2^(old - new maximum), the
// sums of 2^(score - maximum) by position modulo 16, and for each element of the output one chain
// of FMAs over the positions, started from its value times alpha. Nothing of it depends on which
// rows share the tile: a row skips the positions after its own.
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

#ifdef __AVX512F__
inline constexpr int score_rows = 6, score_vectors = 4;  // of 16 positions
inline constexpr int value_rows = 6, value_vectors = 4;  // of 16 elements of a head
#else
inline constexpr int score_rows = 4, score_vectors = 1;
inline constexpr int value_rows = 2, value_vectors = 2;
#endif
inline constexpr int groups_per_chunk = attention_chunk / 16;

/// The parts of a job's scratch, all by row.
struct AttentionTile {
  float* q;        // [rows, head_dim], scaled
  float* sum;      // [rows, head_dim]
  float* scores;   // [rows, 64]
  float* total;    // [rows, 16]
  float* maximum;  // [rows]
  float* alpha;    // [rows]
};

/// Where the 16-position groups of one chunk lie.
template <class Stored>
struct Chunk {
  const Stored* keys[groups_per_chunk];    // [head_dim, block_size] from the group's first position
  const Stored* values[groups_per_chunk];  // [16, head_dim]
};

template <class Stored, int rows, int vectors>
void score_tile(const float* q, std::int64_t head_dim, const Stored* const* keys,
                std::int64_t block_size, float* scores) {
  F16 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = zero();
  for (std::int64_t d = 0; d < head_dim; ++d) {
    F16 key[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) key[v] = load(keys[v] + d * block_size);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const F16 a = broadcast(q[r * head_dim + d]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(a, key[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(scores + r * attention_chunk + 16 * v, sum[r][v]);
}

/// sum = sum * alpha + scores . values over positions [begin, end) of the chunk.
template <class Stored, int rows, int vectors>
void value_tile(const float* scores, const float* alpha, const Stored* const* values,
                std::int64_t head_dim, std::int64_t begin, std::int64_t end, float* out) {
  F16 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = load(out + r * head_dim + 16 * v) * broadcast(alpha[r]);
    }
  for (std::int64_t j = begin; j < end;) {
    const std::int64_t stop = (j / 16 + 1) * 16 < end ? (j / 16 + 1) * 16 : end;
    const Stored* value = values[j / 16] + (j % 16) * head_dim;
    for (; j < stop; ++j, value += head_dim) {
      F16 b[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) b[v] = load(value + 16 * v);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const F16 a = broadcast(scores[r * attention_chunk + j]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] = fma(a, b[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(out + r * head_dim + 16 * v, sum[r][v]);
}

/// Scores of `rows` rows, at most score_rows, against `groups` groups of positions.
template <class Stored, int rows = score_rows>
void score_rows_of(int count, const float* q, std::int64_t head_dim, const Stored* const* keys,
                   std::int64_t block_size, int groups, float* scores) {
  if constexpr (rows > 1) {
    if (count < rows) {
      score_rows_of<Stored, rows - 1>(count, q, head_dim, keys, block_size, groups, scores);
      return;
    }
  }
  int g = 0;
  for (; g + score_vectors <= groups; g += score_vectors) {
    score_tile<Stored, rows, score_vectors>(q, head_dim, keys + g, block_size, scores + 16 * g);
  }
  for (; g < groups; ++g) {
    score_tile<Stored, rows, 1>(q, head_dim, keys + g, block_size, scores + 16 * g);
  }
}

template <class Stored, int rows = value_rows>
void value_rows_of(int count, const float* scores, const float* alpha, const Stored* const* values,
                   std::int64_t head_dim, std::int64_t begin, std::int64_t end, float* out) {
  if constexpr (rows > 1) {
    if (count < rows) {
      value_rows_of<Stored, rows - 1>(count, scores, alpha, values, head_dim, begin, end, out);
      return;
    }
  }
  const Stored* shifted[groups_per_chunk] = {};
  std::int64_t d = 0;
  for (; d + 16 * value_vectors <= head_dim; d += 16 * value_vectors) {
    for (std::int64_t g = 0; 16 * g < end; ++g) shifted[g] = values[g] + d;
    value_tile<Stored, rows, value_vectors>(scores, alpha, shifted, head_dim, begin, end, out + d);
  }
  for (; d < head_dim; d += 16) {
    for (std::int64_t g = 0; 16 * g < end; ++g) shifted[g] = values[g] + d;
    value_tile<Stored, rows, 1>(scores, alpha, shifted, head_dim, begin, end, out + d);
  }
}

/// Turns `visible` scores of a row (1 to 64) into terms of the softmax, the others into zeros.
inline void softmax_row(const AttentionTile& tile, std::int64_t row, std::int64_t visible) {
  const F16 lowest = broadcast(-__builtin_inff());
  float* scores = tile.scores + row * attention_chunk;
  F16 largest = lowest;
  for (std::int64_t i = 0; i < visible; i += 16) {
    largest = max(keep_first(load(scores + i), visible - i, lowest), largest);
  }
  const float old_maximum = tile.maximum[row];
  const float chunk_maximum = reduce_max(largest);
  const float maximum = chunk_maximum > old_maximum ? chunk_maximum : old_maximum;
  const F16 alpha = exp2(broadcast(old_maximum - maximum));
  const F16 subtract = broadcast(maximum);
  F16 total = load(tile.total + row * 16) * alpha;
  for (std::int64_t i = 0; i < visible; i += 16) {
    const F16 term = keep_first(exp2(load(scores + i) - subtract), visible - i, zero());
    store(scores + i, term);
    total = total + term;
  }
  store(tile.total + row * 16, total);
  store(tile.alpha + row, alpha, 1);
  tile.maximum[row] = maximum;
}

template <class Stored>
Chunk<Stored> locate_chunk(const AttentionJob& job, std::int64_t first, int groups) {
  Chunk<Stored> chunk{};
  const std::int64_t dim = job.shape.head_dim;
  for (int g = 0; g < groups; ++g) {
    const std::int64_t position = first + 16 * g;
    const std::int64_t block = job.blocks[position / job.block_size];
    const std::int64_t offset = position % job.block_size;
    const std::int64_t page = (block * job.shape.kv_heads + job.kv_head) * dim * job.block_size;
    chunk.keys[g] = static_cast<const Stored*>(job.keys) + page + offset;
    chunk.values[g] = static_cast<const Stored*>(job.values) + page + offset * dim;
  }
  return chunk;
}

/// Adds positions [first, first + 64) to all rows that see any of them. `per_row` rows of the tile
/// share a position.
template <class Stored>
void add_chunk(const AttentionJob& job, const AttentionTile& tile, std::int64_t rows,
               std::int64_t per_row, std::int64_t first) {
  const std::int64_t dim = job.shape.head_dim;
  const auto visible = [&](std::int64_t row) {
    const std::int64_t n = job.first_position + row / per_row - first + 1;
    return n < 0 ? 0 : n < attention_chunk ? n : attention_chunk;
  };
  std::int64_t begin = 0;
  while (visible(begin) == 0) ++begin;
  const int groups = static_cast<int>((visible(rows - 1) + 15) / 16);
  const Chunk<Stored> chunk = locate_chunk<Stored>(job, first, groups);
  for (std::int64_t r = begin; r < rows; r += score_rows) {
    const int count = static_cast<int>(rows - r < score_rows ? rows - r : score_rows);
    score_rows_of<Stored>(count, tile.q + r * dim, dim, chunk.keys, job.block_size, groups,
                          tile.scores + r * attention_chunk);
  }
  for (std::int64_t r = begin; r < rows; ++r) softmax_row(tile, r, visible(r));
  constexpr float unchanged[value_rows] = {1.0F};
  for (std::int64_t r = begin; r < rows; r += value_rows) {
    const int count = static_cast<int>(rows - r < value_rows ? rows - r : value_rows);
    const std::int64_t common = visible(r);
    const float* scores = tile.scores + r * attention_chunk;
    value_rows_of<Stored>(count, scores, tile.alpha + r, chunk.values, dim, 0, common,
                          tile.sum + r * dim);
    for (int i = 0; i < count; ++i) {
      if (visible(r + i) == common) continue;
      value_rows_of<Stored>(1, scores + i * attention_chunk, unchanged, chunk.values, dim, common,
                            visible(r + i), tile.sum + (r + i) * dim);
    }
  }
}

inline AttentionTile lay_out(float* scratch) {
  AttentionTile tile{};
  tile.q = scratch;
  tile.sum = tile.q + attention_tile_rows * attention_max_head_dim;
  tile.scores = tile.sum + attention_tile_rows * attention_max_head_dim;
  tile.total = tile.scores + attention_tile_rows * attention_chunk;
  tile.maximum = tile.total + attention_tile_rows * 16;
  tile.alpha = tile.maximum + attention_tile_rows;
  return tile;
}

template <class Stored>
void attend(const AttentionJob& job) {
  const std::int64_t dim = job.shape.head_dim;
  const std::int64_t per_row = job.shape.heads / job.shape.kv_heads;
  const std::int64_t rows = job.rows * per_row;
  const AttentionTile tile = lay_out(job.scratch);
  const auto place = [&](std::int64_t row) {  // of this pair's head in q and out
    return ((row / per_row) * job.shape.heads + job.kv_head * per_row + row % per_row) * dim;
  };
  const F16 scale = broadcast(job.shape.scale * 1.44269504F);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* q = job.q + place(r);
    for (std::int64_t d = 0; d < dim; d += 16) {
      store(tile.q + r * dim + d, load(q + d) * scale);
      store(tile.sum + r * dim + d, zero());
    }
    store(tile.total + r * 16, zero());
    tile.maximum[r] = -3.0e38F;  // finite: inf - inf would be NaN
  }
  const std::int64_t positions = job.first_position + job.rows;
  for (std::int64_t first = 0; first < positions; first += attention_chunk) {
    add_chunk<Stored>(job, tile, rows, per_row, first);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const F16 inverse = broadcast(1.0F / reduce_add(load(tile.total + r * 16)));
    float* out = job.out + place(r);
    for (std::int64_t d = 0; d < dim; d += 16) {
      store(out + d, load(tile.sum + r * dim + d) * inverse);
    }
  }
}

void attention(const AttentionJob& job) {
  if (job.dtype == DType::f32) {
    attend<float>(job);
  } else {
    attend<std::uint16_t>(job);
  }
}

}  // namespace troupe::TROUPE_ISA
