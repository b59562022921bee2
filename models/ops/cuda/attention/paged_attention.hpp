#pragma once

#include <cstdint>

#include "models/ops/attention_ops.hpp"
#include "models/ops/cuda/attention/batch_plans.hpp"
#include "models/ops/cuda/attention/paged_pass.hpp"
#include "models/ops/cuda/common/device_buffer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

// What the hosts of the decode and of the batch-invariant kernel share.

/// Device memory where the blocks that share a row leave their parts of it for the one that
/// combines them.
struct PartMemory {
  DeviceBuffer sums;      ///< f32
  DeviceBuffer scales;    ///< float2: maximum, total
  DeviceBuffer finished;  ///< counters, 0 between passes

  /// For so many floats, pairs of floats and counters. Errors: resource_exhausted, internal.
  static Result<PartMemory> create(std::int64_t sums, std::int64_t scales, std::int64_t counters);
};

/// Blocks of an entry: a KV head with more than `block_heads` query heads has several.
inline std::int64_t row_blocks_of(const AttentionShape& shape, std::int64_t block_heads) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  return shape.kv_heads * ((group + block_heads - 1) / block_heads);
}

/// AttentionOps::attend of a planned batch.
template <class Item>
PagedPass<Item> paged_pass(const Tensor& q, const AttentionShape& shape,
                           const AttentionBatch& batch, const KvLayer& cache, const Tensor& out,
                           const ItemPlan<Item>& plan, const PartMemory& parts,
                           std::int64_t row_blocks) {
  using Element = PagedPass<Item>::Element;
  const bool is_capped = shape.soft_cap > 0.0F;
  return {.q = static_cast<const Element*>(q.data()),
          .keys = static_cast<const Element*>(cache.keys.data()),
          .values = static_cast<const Element*>(cache.values.data()),
          .out = static_cast<Element*>(out.data()),
          .items = plan.items(),
          .tables = batch.block_tables.as<std::int32_t>(),
          .sinks = shape.sinks.empty() ? nullptr : shape.sinks.as<float>(),
          .sums = parts.sums.as<float>(),
          .scales = parts.scales.as<float2>(),
          .finished = parts.finished.as<unsigned>(),
          .prefix_sums = nullptr,
          .prefix_scales = nullptr,
          .entries = static_cast<int>(plan.entries()),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .row_blocks = static_cast<int>(row_blocks),
          .group = static_cast<int>(shape.heads / shape.kv_heads),
          .pages_per_block = batch.block_size / attention_page,
          .window = static_cast<int>(shape.window),
          .scale = shape.scale * log2_e * (is_capped ? 2.0F / shape.soft_cap : 1.0F),
          .soft_cap = shape.soft_cap * log2_e};
}

/// The same attention with other items.
template <class Item, class Other>
PagedPass<Item> with_items(const PagedPass<Other>& pass, const Item* items, std::int64_t entries) {
  return {.q = pass.q,
          .keys = pass.keys,
          .values = pass.values,
          .out = pass.out,
          .items = items,
          .tables = pass.tables,
          .sinks = pass.sinks,
          .sums = pass.sums,
          .scales = pass.scales,
          .finished = pass.finished,
          .prefix_sums = pass.prefix_sums,
          .prefix_scales = pass.prefix_scales,
          .entries = static_cast<int>(entries),
          .kv_heads = pass.kv_heads,
          .row_blocks = pass.row_blocks,
          .group = pass.group,
          .pages_per_block = pass.pages_per_block,
          .window = pass.window,
          .scale = pass.scale,
          .soft_cap = pass.soft_cap};
}

}  // namespace troupe
