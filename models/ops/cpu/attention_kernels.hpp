// Causal attention of a few query rows over one KV head's pages, for one instruction set (vec.hpp).
//
// Online softmax (Milakov & Gimelshein 2018) over chunks of 64 absolute positions, from position 0.
// For one pair of query row and head ("row" below) the arithmetic is: scores are one chain of FMAs
// over head_dim, of q * scale * log2(e); per chunk the maximum, alpha = 2^(old - new maximum), the
// sums of 2^(score - maximum) by position modulo 16, and for each element of the output one chain
// of FMAs over the positions, started from its value times alpha. None of it depends on which rows
// share the tile: a row skips the positions that it does not see, and chunks without any.
//
// Codes are widened in registers. The scale of a key multiplies its score, behind the
// chain; that of a value its term, once the term is in the sum.
#pragma once

#include "models/ops/cpu/attention_gemms.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

/// The parts of a job's scratch, each with one entry per row.
struct AttentionTile {
  float* q;        // [rows, head_dim], scaled
  float* sum;      // [rows, value_dim]
  float* scores;   // [rows, 64]
  float* total;    // [rows, 16]
  float* maximum;  // [rows]
  float* alpha;    // [rows]
  float* values;   // [64, value_dim] as stored: one chunk's values if the cache has only keys
};

// AttentionShape::value_dim, reimplemented for this instruction set.
TROUPE_INLINE std::int64_t value_dim_of(const AttentionShape& shape) {
  return shape.latent > 0 ? shape.latent : shape.head_dim;
}

/// The positions of a chunk that a row sees: [begin, end), relative to the chunk's first.
struct Seen {
  std::int64_t begin, end;
};

/// Addresses of the 16-position groups of one chunk.
template <class Key, class Value>
struct Chunk {
  const Key* keys[groups_per_chunk];      // [head_dim, block_size] from the group's first position
  const Value* values[groups_per_chunk];  // [16, head_dim]
  const std::uint16_t* key_scales[groups_per_chunk];    // of codes: [scales, block_size]
  const std::uint16_t* value_scales[groups_per_chunk];  // of codes: [16]
};

/// With windows, x with `other` in its first n lanes; otherwise x.
template <bool windowed>
TROUPE_INLINE F16 without_first(F16 x, std::int64_t n, F16 other) {
  if constexpr (windowed) return keep_first(other, n, x);
  return x;
}

/// Applies AttentionShape::soft_cap to the scores of a row, which are times log2(e).
inline void cap_scores(const AttentionTile& tile, std::int64_t row, Seen seen, float soft_cap) {
  const F16 cap = broadcast(soft_cap * 1.44269504F), inward = broadcast(2.0F / soft_cap),
            one = broadcast(1.0F), twice = broadcast(2.0F), largest = broadcast(126.0F);
  float* scores = tile.scores + row * attention_chunk;
  for (std::int64_t i = seen.begin / 16 * 16; i < seen.end; i += 16) {
    const F16 power = exp2(min(largest, load(scores + i) * inward));  // e^(2 s / cap)
    store(scores + i, cap * (one - twice / (power + one)));
  }
}

/// Turns the scores that a row sees into softmax terms, and the others in their groups of 16
/// positions into zeros. Without windows all rows see a chunk from its first position, which is
/// known at compile time.
template <bool windowed>
void softmax_row(const AttentionTile& tile, std::int64_t row, Seen seen) {
  const F16 lowest = broadcast(-__builtin_inff());
  const std::int64_t first = windowed ? seen.begin / 16 * 16 : 0;
  float* scores = tile.scores + row * attention_chunk;
  F16 largest = lowest;
  for (std::int64_t i = first; i < seen.end; i += 16) {
    const F16 upper = keep_first(load(scores + i), seen.end - i, lowest);
    largest = max(without_first<windowed>(upper, seen.begin - i, lowest), largest);
  }
  const float old_maximum = tile.maximum[row];
  const float chunk_maximum = reduce_max(largest);
  const float maximum = chunk_maximum > old_maximum ? chunk_maximum : old_maximum;
  const F16 alpha = exp2(broadcast(old_maximum - maximum));
  const F16 subtract = broadcast(maximum);
  F16 total = load(tile.total + row * 16) * alpha;
  for (std::int64_t i = first; i < seen.end; i += 16) {
    const F16 upper = keep_first(exp2(load(scores + i) - subtract), seen.end - i, zero());
    const F16 term = without_first<windowed>(upper, seen.begin - i, zero());
    store(scores + i, term);
    total = total + term;
  }
  store(tile.total + row * 16, total);
  store(tile.alpha + row, alpha, 1);
  tile.maximum[row] = maximum;
}

/// One group's values, the first value_dim elements of its keys, as [16, value_dim].
template <class Stored>
void transpose_values(const Stored* keys, std::int64_t block_size, std::int64_t value_dim,
                      Stored* values) {
  for (std::int64_t d = 0; d < value_dim; ++d) {
    for (std::int64_t j = 0; j < 16; ++j) values[j * value_dim + d] = keys[d * block_size + j];
  }
}

/// The offset of a KV head's page in keys or values of a layout, in elements.
TROUPE_INLINE std::int64_t page_of(const AttentionJob& job, const KvRowLayout& layout,
                                   std::int64_t position) {
  const std::int64_t kv_heads = job.shape.kv_heads;
  const std::int64_t kv_head = job.first_head / (job.shape.heads / kv_heads);
  return (job.blocks[position / job.block_size] * kv_heads + kv_head) *
         layout.page_elements(job.block_size);
}

/// The first scales of the 16 positions from `position` in keys or values; null unless of codes.
template <class Stored>
const std::uint16_t* scales_at(const AttentionJob& job, const KvRowLayout& layout,
                               const void* pages, std::int64_t position) {
  if constexpr (!is_code<Stored>) return nullptr;
  const Stored* page = static_cast<const Stored*>(pages) + page_of(job, layout, position);
  return scales_of_page(layout, page, job.block_size) + position % job.block_size;
}

/// The bytes of 16 numbers that lie one behind the other.
template <class Stored>
inline constexpr std::int64_t bytes_of_16 = 16 / numbers_in<Stored> * sizeof(Stored);

/// Computes the scores of `count` rows with the keys of some groups: score_rows_of for each scale
/// that keys have. `upcoming`: values, each 16 numbers of which take `upcoming_stride` bytes.
template <class Stored, bool prefetches>
void score_keys_of(const AttentionJob& job, int count, const float* q, const Stored* const* keys,
                   const std::uint16_t* const* scales, const char* const* upcoming,
                   std::int64_t upcoming_stride, int groups, float* scores) {
  const std::int64_t dim = job.shape.head_dim, first = job.layout.first_part;
  score_rows_of<Stored, prefetches>(count, q, {first, dim, job.block_size, false, upcoming_stride},
                                    keys, scales, upcoming, groups, scores);
  if (first == dim) return;
  const Stored* others[groups_per_chunk] = {};
  const std::uint16_t* other_scales[groups_per_chunk] = {};
  for (int g = 0; g < groups; ++g) {
    others[g] = keys[g] + first * job.block_size;
    other_scales[g] = scales[g] + job.block_size;
  }
  score_rows_of<Stored, false>(count, q + first, {dim - first, dim, job.block_size, true}, others,
                               other_scales, upcoming, groups, scores);
}

/// Multiplies the terms of a row by the scales of their values.
template <class Key, class Value>
void scale_terms(const AttentionTile& tile, std::int64_t row, Seen seen,
                 const Chunk<Key, Value>& chunk) {
  float* scores = tile.scores + row * attention_chunk;
  for (std::int64_t i = seen.begin / 16 * 16; i < seen.end; i += 16) {
    store(scores + i, load(scores + i) * load_half(chunk.value_scales[i / 16]));
  }
}

/// The keys of the 16 positions from `position`, [head_dim, block_size].
template <class Stored>
const Stored* keys_at(const AttentionJob& job, std::int64_t position) {
  return static_cast<const Stored*>(job.keys) + page_of(job, job.layout, position) +
         position % job.block_size;
}

/// Locates the groups of 16 positions [begin, end) of the chunk at position `first`.
template <class Key, class Value>
Chunk<Key, Value> locate_chunk(const AttentionJob& job, const AttentionTile& tile,
                               std::int64_t first, int begin, int end) {
  Chunk<Key, Value> chunk{};
  for (int g = begin; g < end; ++g) {
    const std::int64_t position = first + 16 * g;
    chunk.keys[g] = keys_at<Key>(job, position);
    chunk.key_scales[g] = scales_at<Key>(job, job.layout, job.keys, position);
    if (job.shape.latent == 0) {
      chunk.values[g] = static_cast<const Value*>(job.values) +
                        page_of(job, job.value_layout, position) +
                        position % job.block_size * job.value_layout.elements;
      chunk.value_scales[g] = scales_at<Value>(job, job.value_layout, job.values, position);
      continue;
    }
    // Keys and values are of one type.
    chunk.value_scales[g] = chunk.key_scales[g];
    Value* values = reinterpret_cast<Value*>(tile.values) + 16 * g * job.shape.latent;
    transpose_values(reinterpret_cast<const Value*>(chunk.keys[g]), job.block_size,
                     job.shape.latent, values);
    chunk.values[g] = values;
  }
  return chunk;
}

/// The begin of the first chunk that any row of the job sees.
inline std::int64_t first_chunk_of(const AttentionJob& job) {
  const std::int64_t oldest = job.first_position - job.shape.window + 1;
  if (job.shape.window == 0 || oldest < 0) return 0;
  return oldest / attention_chunk * attention_chunk;
}

/// Sets `keys` to the groups that are read after the chunk at position `first`, in this job or the
/// following one, and returns their number.
template <class Stored>
int keys_after(const AttentionJob& job, std::int64_t first, const char** keys) {
  const AttentionJob* next = &job;
  first += attention_chunk;
  if (first >= job.first_position + job.rows) {
    if (job.following == nullptr) return 0;
    next = job.following;
    first = first_chunk_of(*next);
  }
  int groups = 0;
  for (; groups < groups_per_chunk; ++groups) {
    const std::int64_t position = first + 16 * groups;
    if (position >= next->first_position + next->rows) break;
    keys[groups] = reinterpret_cast<const char*>(keys_at<Stored>(*next, position));
  }
  return groups;
}

/// Adds the values that rows [row, row + count) see; `seen` is the first row's.
template <bool windowed, class Key, class Value, class SeenBy>
void add_values(const AttentionJob& job, const AttentionTile& tile, const Chunk<Key, Value>& chunk,
                std::int64_t row, int count, const char* const* upcoming, const SeenBy& seen_by) {
  constexpr float unchanged[value_rows] = {1.0F};
  const std::int64_t key_stride = job.block_size / 16 * bytes_of_16<Key>;
  const std::int64_t value_dim = value_dim_of(job.shape);
  const auto add = [&]<bool prefetches>(std::int64_t r, int rows, const float* alpha,
                                        std::int64_t begin, std::int64_t end) {
    value_rows_of<Value, prefetches>(rows, tile.scores + r * attention_chunk, alpha, chunk.values,
                                     upcoming, value_dim, key_stride, begin, end,
                                     tile.sum + r * value_dim);
  };
  const Seen common = seen_by(row);
  if (windowed &&
      seen_by(row + count - 1).begin != common.begin) {  // the window moves within the chunk
    for (std::int64_t r = row; r < row + count; ++r) {
      add.template operator()<false>(r, 1, tile.alpha + r, seen_by(r).begin, seen_by(r).end);
    }
    return;
  }
  if (upcoming != nullptr) {
    add.template operator()<true>(row, count, tile.alpha + row, common.begin, common.end);
  } else {
    add.template operator()<false>(row, count, tile.alpha + row, common.begin, common.end);
  }
  for (std::int64_t r = row; r < row + count; ++r) {
    if (seen_by(r).end == common.end) continue;
    add.template operator()<false>(r, 1, unchanged, common.end, seen_by(r).end);
  }
}

/// Adds positions [first, first + 64) to all rows that see any of them; at least one does.
/// `per_row` rows of the tile share a position.
template <class Key, class Value, bool windowed>
void add_chunk(const AttentionJob& job, const AttentionTile& tile, std::int64_t rows,
               std::int64_t per_row, std::int64_t first) {
  const std::int64_t dim = job.shape.head_dim, window = job.shape.window;
  const auto in_chunk = [](std::int64_t i) {
    return i < 0 ? 0 : i < attention_chunk ? i : attention_chunk;
  };
  const auto seen_by = [&](std::int64_t row) {
    const std::int64_t end = job.first_position + row / per_row - first + 1;
    return Seen{windowed ? in_chunk(end - window) : 0, in_chunk(end)};
  };
  std::int64_t begin = 0, end = rows;
  while (seen_by(begin).end == 0) ++begin;
  while (windowed && seen_by(end - 1).begin == attention_chunk) --end;
  const int first_group = static_cast<int>(seen_by(begin).begin / 16);
  const int groups = static_cast<int>((seen_by(end - 1).end + 15) / 16);
  const auto chunk = locate_chunk<Key, Value>(job, tile, first, first_group, groups);
  // With many rows a chunk takes long enough for the hardware prefetcher.
  const bool prefetches = end - begin <= score_rows && job.shape.latent == 0;
  const char* values[groups_per_chunk] = {};
  for (int g = first_group; g < groups; ++g) {
    values[g] = reinterpret_cast<const char*>(chunk.values[g]);
  }
  const auto score = [&]<bool with_values>(std::int64_t r, int count) {
    score_keys_of<Key, with_values>(job, count, tile.q + r * dim, chunk.keys + first_group,
                                    chunk.key_scales + first_group, values + first_group,
                                    bytes_of_16<Value>, groups - first_group,
                                    tile.scores + r * attention_chunk + 16 * first_group);
  };
  for (std::int64_t r = begin; r < end; r += score_rows) {
    const int count = static_cast<int>(end - r < score_rows ? end - r : score_rows);
    if (prefetches) {
      score.template operator()<true>(r, count);
    } else {
      score.template operator()<false>(r, count);
    }
  }
  for (std::int64_t r = begin; r < end; ++r) {
    if (job.shape.soft_cap > 0.0F) cap_scores(tile, r, seen_by(r), job.shape.soft_cap);
    softmax_row<windowed>(tile, r, seen_by(r));
    if constexpr (is_code<Value>) scale_terms(tile, r, seen_by(r), chunk);
  }
  const char* upcoming[groups_per_chunk] = {};
  const int upcoming_groups = prefetches ? keys_after<Key>(job, first, upcoming) : 0;
  const std::int64_t key_stride = job.block_size / 16 * bytes_of_16<Key>;
  for (int g = groups; g < upcoming_groups; ++g) {  // no values are read beside these keys
    for (std::int64_t d = 0; d < dim; ++d) prefetch(upcoming[g] + d * key_stride);
  }
  for (int g = upcoming_groups; g < groups; ++g) {
    upcoming[g] = reinterpret_cast<const char*>(chunk.keys[g]);
  }
  for (std::int64_t r = begin; r < end; r += value_rows) {
    const int count = static_cast<int>(end - r < value_rows ? end - r : value_rows);
    const bool first_rows = upcoming_groups > 0 && r == begin;
    add_values<windowed>(job, tile, chunk, r, count, first_rows ? upcoming : nullptr, seen_by);
  }
}

inline AttentionTile lay_out(float* scratch, std::int64_t head_dim) {
  AttentionTile tile{};
  tile.q = scratch;
  tile.sum = tile.q + attention_tile_rows * head_dim;
  tile.scores = tile.sum + attention_tile_rows * head_dim;
  tile.total = tile.scores + attention_tile_rows * attention_chunk;
  tile.maximum = tile.total + attention_tile_rows * 16;
  tile.alpha = tile.maximum + attention_tile_rows;
  tile.values = tile.alpha + attention_tile_rows;
  return tile;
}

/// What a row's sink adds to the total of its terms.
TROUPE_INLINE float sink_term(const AttentionJob& job, const AttentionTile& tile,
                              std::int64_t row) {
  if (job.sinks == nullptr) return 0.0F;
  const float score = job.sinks[job.first_head + row % job.heads] * 1.44269504F;
  float terms[16];
  store(terms, exp2(min(broadcast(126.0F), broadcast(score - tile.maximum[row]))));
  return terms[0];
}

template <class Key, class Value>
void attend(const AttentionJob& job) {
  const std::int64_t dim = job.shape.head_dim, value_dim = value_dim_of(job.shape);
  const std::int64_t per_row = job.heads;
  const std::int64_t rows = job.rows * per_row;
  const AttentionTile tile = lay_out(job.scratch, dim);
  const auto place = [&](std::int64_t row) {  // the index of this row among the heads of q and out
    return (row / per_row) * job.shape.heads + job.first_head + row % per_row;
  };
  const F16 scale = broadcast(job.shape.scale * 1.44269504F);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* q = job.q + place(r) * dim;
    for (std::int64_t d = 0; d < dim; d += 16) {
      store_up_to(tile.q + r * dim + d, load_up_to(q + d, dim - d) * scale, dim - d);
    }
    for (std::int64_t d = 0; d < value_dim; d += 16) {
      store_up_to(tile.sum + r * value_dim + d, zero(), value_dim - d);
    }
    store(tile.total + r * 16, zero());
    tile.maximum[r] = -3.0e38F;  // finite: inf - inf would be NaN
  }
  const std::int64_t positions = job.first_position + job.rows;
  for (std::int64_t first = first_chunk_of(job); first < positions; first += attention_chunk) {
    if (job.shape.window == 0) {
      add_chunk<Key, Value, false>(job, tile, rows, per_row, first);
    } else {
      add_chunk<Key, Value, true>(job, tile, rows, per_row, first);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const float total = reduce_add(load(tile.total + r * 16)) + sink_term(job, tile, r);
    const F16 inverse = broadcast(1.0F / total);
    float* out = job.out + place(r) * value_dim;
    for (std::int64_t d = 0; d < value_dim; d += 16) {
      const F16 sum = load_up_to(tile.sum + r * value_dim + d, value_dim - d);
      store_up_to(out + d, sum * inverse, value_dim - d);
    }
  }
}

void attention(const AttentionJob& job) {
  with_stored(job.layout.stored, job.value_layout.stored,
              [&](auto key, auto value) { attend<decltype(key), decltype(value)>(job); });
}

}  // namespace troupe::TROUPE_ISA
