#include "parallel/sharding/sharding.hpp"

#include <algorithm>
#include <cassert>
#include <string>

namespace troupe {

namespace {

Slice times(Slice slice, std::int64_t factor) {
  return {slice.begin * factor, slice.count * factor};
}

// Checks that `extent` of weight `name` is `heads` heads of head_dim each.
Result<void> check_heads(std::string_view name, std::string_view dimension, std::int64_t extent,
                         std::int64_t heads, std::int64_t head_dim) {
  if (extent == heads * head_dim) return {};
  return fail(ErrorCode::invalid_argument, "{}: expected {} {} ({} heads of {}), found {}", name,
              heads * head_dim, dimension, heads, head_dim, extent);
}

}  // namespace

std::string_view to_string(ShardRule rule) {
  switch (rule) {
    case ShardRule::replicated:
      return "replicated";
    case ShardRule::column:
      return "column";
    case ShardRule::row:
      return "row";
    case ShardRule::vocabulary:
      return "vocabulary";
    case ShardRule::heads:
      return "heads";
    case ShardRule::kv_heads:
      return "kv_heads";
    case ShardRule::heads_in:
      return "heads_in";
  }
  return "unknown";
}

Result<Slice> even_slice(std::string_view what, std::int64_t extent, ShardOf shard) {
  assert(shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size);
  if (extent % shard.size != 0) {
    return fail(ErrorCode::invalid_argument, "tensor size {} does not divide {} {}", shard.size,
                what, extent);
  }
  const std::int64_t share = extent / shard.size;
  return Slice{shard.rank * share, share};
}

Slice ceil_slice(std::int64_t extent, ShardOf shard) {
  assert(shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size);
  const std::int64_t share = (extent + shard.size - 1) / shard.size;
  const std::int64_t begin = std::min(extent, shard.rank * share);
  return {begin, std::min(share, extent - begin)};
}

Result<Slice> kv_head_slice(std::int64_t kv_heads, ShardOf shard) {
  if (shard.size <= kv_heads) return even_slice("KV heads", kv_heads, shard);
  if (kv_heads < 1 || shard.size % kv_heads != 0) {
    return fail(ErrorCode::invalid_argument, "KV heads {} do not divide tensor size {}", kv_heads,
                shard.size);
  }
  return Slice{shard.rank / (shard.size / kv_heads), 1};
}

Result<WeightShard> shard_weight(std::string_view name, ShardRule rule, std::int64_t rows,
                                 std::int64_t cols, const HeadLayout& layout, ShardOf shard) {
  const Slice all_rows{0, rows};
  const Slice all_cols{0, cols};
  const auto what = [&](std::string_view dimension) {
    return fmt::format("{} of {}", dimension, name);
  };
  switch (rule) {
    case ShardRule::replicated:
      return WeightShard{all_rows, all_cols};
    case ShardRule::column: {
      TROUPE_TRY(const Slice part, even_slice(what("output features"), rows, shard));
      return WeightShard{part, all_cols};
    }
    case ShardRule::row: {
      TROUPE_TRY(const Slice part, even_slice(what("input features"), cols, shard));
      return WeightShard{all_rows, part};
    }
    case ShardRule::vocabulary:
      return WeightShard{ceil_slice(rows, shard), all_cols};
    case ShardRule::heads: {
      TROUPE_CHECK(check_heads(name, "rows", rows, layout.heads, layout.head_dim));
      TROUPE_TRY(const Slice part, even_slice(what("heads"), layout.heads, shard));
      return WeightShard{times(part, layout.head_dim), all_cols};
    }
    case ShardRule::kv_heads: {
      TROUPE_CHECK(check_heads(name, "rows", rows, layout.kv_heads, layout.head_dim));
      TROUPE_TRY(const Slice part, kv_head_slice(layout.kv_heads, shard));
      return WeightShard{times(part, layout.head_dim), all_cols};
    }
    case ShardRule::heads_in: {
      TROUPE_CHECK(check_heads(name, "columns", cols, layout.heads, layout.head_dim));
      TROUPE_TRY(const Slice part, even_slice(what("heads"), layout.heads, shard));
      return WeightShard{all_rows, times(part, layout.head_dim)};
    }
  }
  return fail(ErrorCode::internal, "{}: unknown shard rule", name);
}

Result<QkvRows> qkv_rows(const HeadLayout& layout, ShardOf shard) {
  if (layout.kv_heads < 1 || layout.heads % layout.kv_heads != 0) {
    return fail(ErrorCode::invalid_argument, "KV heads {} do not divide heads {}", layout.kv_heads,
                layout.heads);
  }
  TROUPE_TRY(const Slice query, even_slice("heads", layout.heads, shard));
  TROUPE_TRY(const Slice kv, kv_head_slice(layout.kv_heads, shard));
  QkvRows rows;
  rows.q = times(query, layout.head_dim);
  rows.k = rows.v = times(kv, layout.head_dim);
  return rows;
}

Result<Slice> gate_up_rows(std::int64_t intermediate, ShardOf shard) {
  return even_slice("intermediate size", intermediate, shard);
}

int row_parallel_segments(std::int64_t extent, int most) {
  assert(extent > 0);
  int segments = most;
  while (extent % segments != 0) segments /= 2;
  return segments;
}

Result<int> segments_per_rank(std::string_view what, std::int64_t extent, int tensor_size,
                              int most) {
  const int segments = row_parallel_segments(extent, most);
  if (tensor_size >= 1 && segments % tensor_size == 0) return segments / tensor_size;
  return fail(ErrorCode::invalid_argument,
              "tensor size {} does not divide the {} segments of {} {}, which keep results the "
              "same at every tensor size",
              tensor_size, segments, what, extent);
}

}  // namespace troupe
