#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// How a weight [rows = output features, cols = input features] is spread over the tensor ranks.
enum class ShardRule {
  replicated,  ///< every rank has all of it
  column,      ///< column parallel: an equal part of the output features (dim 0) each
  row,         ///< row parallel: an equal part of the input features (dim 1) each
  vocabulary,  ///< rows in parts of ceil(rows / n); the last ranks may have fewer or none
  heads,       ///< rows are query heads x head_dim, whole heads each
  kv_heads,    ///< rows are KV heads x head_dim; replicated if there are more ranks than heads
  heads_in,    ///< row parallel over query heads: cols are heads x head_dim (o_proj)
};

/// "replicated", "column", ...
std::string_view to_string(ShardRule rule);

/// A half-open range [begin, begin + count) of one dimension.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return begin + count; }
  bool operator==(const Slice&) const = default;
};

/// Rank `rank` of the `size` ranks that share a tensor; 0 <= rank < size.
struct ShardOf {
  int rank = 0;
  int size = 1;
};

/// Rank r's part if every rank must get the same amount. Errors: invalid_argument "tensor size <n>
/// does not divide <what> <extent>".
Result<Slice> even_slice(std::string_view what, std::int64_t extent, ShardOf shard);

/// Rank r's part in slices of ceil(extent / size): the last ranks may get less or nothing. For
/// tokens under sequence parallelism and for the vocabulary.
Slice ceil_slice(std::int64_t extent, ShardOf shard);

/// Rank r's KV heads: an equal part, or, if there are more ranks than heads, head r / (size /
/// kv_heads), shared by `size / kv_heads` neighbours. Errors: invalid_argument unless one divides
/// the other.
Result<Slice> kv_head_slice(std::int64_t kv_heads, ShardOf shard);

/// Attention's extents, which the rules over heads need.
struct HeadLayout {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
};

/// The part of a checkpoint's weight [rows, cols] that one rank holds.
struct WeightShard {
  Slice rows;
  Slice cols;
  bool operator==(const WeightShard&) const = default;
};

/// Rank r's part of weight `name` [rows, cols]. Only the rules over heads read `layout`. Errors:
/// invalid_argument naming the weight and the sizes that do not divide.
Result<WeightShard> shard_weight(std::string_view name, ShardRule rule, std::int64_t rows,
                                 std::int64_t cols, const HeadLayout& layout, ShardOf shard);

/// Rank r's rows of q_proj, k_proj and v_proj; its fused matrix holds those of q, then k, then v.
struct QkvRows {
  Slice q;
  Slice k;  ///< in k_proj's rows
  Slice v;  ///< in v_proj's rows; always equal to k

  std::int64_t total() const { return q.count + k.count + v.count; }
};
/// Query heads and the KV heads they read stay together: rank r's query head h (counted in the
/// whole model) reads KV head h / (heads / kv_heads), which is always among its own. Errors: as
/// shard_weight; kv_heads must divide heads.
Result<QkvRows> qkv_rows(const HeadLayout& layout, ShardOf shard);

/// Rank r's rows in each of gate_proj and up_proj [intermediate, hidden]; its fused matrix holds
/// those of gate, then those of up. Errors: as even_slice.
Result<Slice> gate_up_rows(std::int64_t intermediate, ShardOf shard);

/// The default maximum of segments.
inline constexpr int max_segments = 8;

/// The number S of segments in which a row-parallel matrix's K is always computed, whatever the
/// tensor size: the largest power of two <= `most` (a power of two) that divides `extent`: the
/// heads for o_proj, else the matrix's own K (> 0). The S partial sums are added as a binary tree
/// (parallel/collectives/tree_sum.hpp).
int row_parallel_segments(std::int64_t extent, int most = max_segments);

/// Segments of the K that one rank of `tensor_size` has: S / tensor_size. Errors: invalid_argument
/// "tensor size <n> does not divide the <S> segments of <what> <extent>", because results would
/// then depend on the tensor size.
Result<int> segments_per_rank(std::string_view what, std::int64_t extent, int tensor_size,
                              int most = max_segments);

}  // namespace troupe
