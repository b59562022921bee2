// The two GEMMs of attention with their sums in registers, for one instruction set (vec.hpp):
// scores of a few rows with the keys of a chunk of 64 positions, and sums of its values by those
// scores. attention_kernels.hpp says in which order numbers are added.
#pragma once

#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/kv_codes.hpp"
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
/// What is read next of each group, where nothing is prefetched.
inline constexpr const char* nothing[groups_per_chunk] = {};

/// Prefetches the line at `address` into the second-level cache.
TROUPE_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 2); }

/// What a tile of scores reads: `elements` of each query row and key.
struct ScoredPart {
  std::int64_t elements;
  std::int64_t q_stride;    // from row to row
  std::int64_t block_size;  // from element to element of a key
  bool adds;                // to the scores that are there, which other elements have given
  std::int64_t upcoming_stride = 0;  // bytes of 16 numbers of what is read next
};

/// Computes the scores of `rows` rows. Of codes each is multiplied by its key's scale: scales are
/// fp16, 16 for each group; otherwise null. With `prefetches`, the data read next of each group is
/// prefetched while the keys are read: `upcoming`, [16, head_dim] numbers. A block is a page of a
/// few KiB at any address, where the hardware prefetcher starts anew.
template <class Stored, int rows, int vectors, bool prefetches>
void score_tile(const float* q, const ScoredPart& part, const Stored* const* keys,
                const std::uint16_t* const* scales, const char* const* upcoming, float* scores) {
  constexpr int parts = numbers_in<Stored>;
  F16 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = zero();
  for (std::int64_t d = 0; d < part.elements; d += parts) {
#pragma GCC unroll 2
    for (int which = 0; which < parts; ++which) {
      F16 key[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        key[v] = load_one_of(keys[v] + d / parts * part.block_size, which);
        if constexpr (prefetches) prefetch(upcoming[v] + (d + which) * part.upcoming_stride);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const F16 a = broadcast(q[r * part.q_stride + d + which]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] = fma(a, key[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* const score = scores + r * attention_chunk + 16 * v;
      if constexpr (is_code<Stored>) {
        sum[r][v] = sum[r][v] * load_half(scales[v]);
        if (part.adds) sum[r][v] = sum[r][v] + load(score);
      }
      store(score, sum[r][v]);
    }
}

/// sum = sum * alpha + scores . values over positions [begin, end) of the chunk. `upcoming` as in
/// score_tile: keys, [head_dim, block_size] numbers of `key_stride` bytes a row. With `partial`
/// there is one vector, and only its first `lanes` belong to the head.
template <class Stored, int rows, int vectors, bool prefetches, bool partial = false>
void value_tile(const float* scores, const float* alpha, const Stored* const* values,
                const char* const* upcoming, std::int64_t value_dim, std::int64_t key_stride,
                std::int64_t begin, std::int64_t end, float* out, std::int64_t lanes = 16) {
  constexpr int parts = numbers_in<Stored>;
  const auto load_part = [lanes](const auto* from) {
    if constexpr (partial) return load(from, lanes);
    return load(from);
  };
  F16 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = load_part(out + r * value_dim + 16 * v) * broadcast(alpha[r]);
    }
  for (std::int64_t j = begin; j < end;) {
    const std::int64_t stop = (j / 16 + 1) * 16 < end ? (j / 16 + 1) * 16 : end;
    const Stored* value = values[j / 16] + (j % 16) * value_dim / parts;
    // Keys of 16 positions: one element of them for every 16 elements of a value.
    const char* next = nullptr;
    if constexpr (prefetches) next = upcoming[j / 16] + (j % 16) * (value_dim / 16) * key_stride;
    for (; j < stop; ++j, value += value_dim / parts) {
      F16 b[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        b[v] = load_part(value + 16 * v / parts);
        if constexpr (prefetches) prefetch(next + v * key_stride);
      }
      if constexpr (prefetches) next += value_dim / 16 * key_stride;
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
    for (int v = 0; v < vectors; ++v) {
      if constexpr (partial) {
        store(out + r * value_dim, sum[r][v], lanes);
      } else {
        store(out + r * value_dim + 16 * v, sum[r][v]);
      }
    }
}

/// Scores of `count` rows, at most score_rows, against `groups` groups of positions.
template <class Stored, bool prefetches, int rows = score_rows>
void score_rows_of(int count, const float* q, const ScoredPart& part, const Stored* const* keys,
                   const std::uint16_t* const* scales, const char* const* upcoming, int groups,
                   float* scores) {
  if constexpr (rows > 1) {
    if (count < rows) {
      score_rows_of<Stored, prefetches, rows - 1>(count, q, part, keys, scales, upcoming, groups,
                                                  scores);
      return;
    }
  }
  const auto scales_at = [scales](int g) { return scales == nullptr ? nullptr : scales + g; };
  int g = 0;
  for (; g + score_vectors <= groups; g += score_vectors) {
    score_tile<Stored, rows, score_vectors, prefetches>(q, part, keys + g, scales_at(g),
                                                        upcoming + g, scores + 16 * g);
  }
  for (; g < groups; ++g) {
    score_tile<Stored, rows, 1, prefetches>(q, part, keys + g, scales_at(g), upcoming + g,
                                            scores + 16 * g);
  }
}

/// value_tile for `count` rows, at most value_rows, and all elements of a head.
template <class Stored, bool prefetches, int rows = value_rows>
void value_rows_of(int count, const float* scores, const float* alpha, const Stored* const* values,
                   const char* const* upcoming, std::int64_t value_dim, std::int64_t key_stride,
                   std::int64_t begin, std::int64_t end, float* out) {
  if constexpr (rows > 1) {
    if (count < rows) {
      value_rows_of<Stored, prefetches, rows - 1>(count, scores, alpha, values, upcoming, value_dim,
                                                  key_stride, begin, end, out);
      return;
    }
  }
  const Stored* part[groups_per_chunk] = {};
  const char* next[groups_per_chunk] = {};
  const auto go_to = [&](std::int64_t d) {
    for (std::int64_t g = begin / 16; 16 * g < end; ++g) {
      part[g] = values[g] + d / numbers_in<Stored>;
      if constexpr (prefetches) next[g] = upcoming[g] + d / 16 * key_stride;
    }
  };
  std::int64_t d = 0;
  for (; d + 16 * value_vectors <= value_dim; d += 16 * value_vectors) {
    go_to(d);
    value_tile<Stored, rows, value_vectors, prefetches>(scores, alpha, part, next, value_dim,
                                                        key_stride, begin, end, out + d);
  }
  for (; d + 16 <= value_dim; d += 16) {
    go_to(d);
    value_tile<Stored, rows, 1, prefetches>(scores, alpha, part, next, value_dim, key_stride, begin,
                                            end, out + d);
  }
  if (d == value_dim) return;
  go_to(d);
  value_tile<Stored, rows, 1, false, true>(scores, alpha, part, next, value_dim, key_stride, begin,
                                           end, out + d, value_dim - d);
}

}  // namespace troupe::TROUPE_ISA
