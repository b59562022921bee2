#include <cstdint>

#include "models/ops/cpu/cpu_components.hpp"

namespace troupe {
namespace {

/// Calls copy(element in the cache, element in the row) for all keys and then all values of the
/// tokens [begin, end). Keys are [blocks, kv_heads, head_dim, block_size], values [blocks,
/// kv_heads, block_size, head_dim].
template <class Element, class Copy>
void for_tokens(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                const Tensor& rows, std::int64_t begin, std::int64_t end, const Copy& copy) {
  const std::int64_t dim = shape.head_dim, block_size = cache.keys[3];
  auto* const keys = static_cast<Element*>(cache.keys.data());
  auto* const values = static_cast<Element*>(cache.values.data());
  auto* const first = static_cast<Element*>(rows.data());
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int32_t slot = slots.as<std::int32_t>()[token];
    const std::int64_t block = slot / block_size, offset = slot % block_size;
    Element* row = first + token * rows[1];
    for (std::int64_t head = block * shape.kv_heads; head < (block + 1) * shape.kv_heads; ++head) {
      Element* const key = keys + head * dim * block_size + offset;
      for (std::int64_t i = 0; i < dim; ++i) copy(key[i * block_size], row[i]);
      row += dim;
    }
    if (cache.values.empty()) continue;
    for (std::int64_t head = block * shape.kv_heads; head < (block + 1) * shape.kv_heads; ++head) {
      Element* const value = values + (head * block_size + offset) * dim;
      for (std::int64_t i = 0; i < dim; ++i) copy(value[i], row[i]);
      row += dim;
    }
  }
}

template <class Copy>
void copy_tokens(CpuContext& context, const KvLayer& cache, const AttentionShape& shape,
                 const Tensor& slots, const Tensor& rows, const Copy& copy) {
  context.for_rows(rows[0], 2 * row_bytes(rows), [&](std::int64_t begin, std::int64_t end, int) {
    if (cache.keys.dtype() == DType::f32) {
      for_tokens<std::uint32_t>(cache, shape, slots, rows, begin, end, copy);
    } else {
      for_tokens<std::uint16_t>(cache, shape, slots, rows, begin, end, copy);
    }
  });
}

}  // namespace

void CpuAttentionOps::do_gather_kv(const KvLayer& cache, const AttentionShape& shape,
                                   const Tensor& slots, const Tensor& rows) {
  copy_tokens(context_, cache, shape, slots, rows,
              [](const auto& cached, auto& element) { element = cached; });
}

void CpuAttentionOps::do_scatter_kv(const Tensor& rows, const AttentionShape& shape,
                                    const Tensor& slots, const KvLayer& cache) {
  copy_tokens(context_, cache, shape, slots, rows,
              [](auto& cached, const auto& element) { cached = element; });
}

}  // namespace troupe
