#include <cstdint>

#include "models/ops/cpu/cpu_components.hpp"
#include "models/ops/cpu/kv_elements.hpp"

namespace troupe {
namespace {

/// Calls copy(element in the cache, element in the row) for all keys and then all values of the
/// tokens [begin, end), scales included.
template <class Element, class Copy>
void for_tokens(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                const Tensor& rows, std::int64_t begin, std::int64_t end, const Copy& copy) {
  const KvRowLayout of_keys = shape.row_layout(cache.keys.dtype());
  const KvRowLayout of_values = shape.row_layout(cache.values.dtype());
  const std::int64_t block_size = cache.keys[3];
  auto* const first = static_cast<Element*>(rows.data());
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int32_t slot = slots.as<std::int32_t>()[token];
    const std::int64_t block = slot / block_size, offset = slot % block_size;
    Element* row = first + token * rows[1];
    const auto copy_heads = [&](const Tensor& pages, const KvRowLayout& layout,
                                const auto& place_of) {
      for (std::int64_t head = 0; head < shape.kv_heads; ++head, row += layout.row_elements) {
        Element* const page = static_cast<Element*>(pages.data()) +
                              (block * shape.kv_heads + head) * layout.page_elements(block_size);
        for (std::int64_t i = 0; i < layout.row_elements; ++i) copy(page[place_of(i)], row[i]);
      }
    };
    copy_heads(cache.keys, of_keys,
               [&](std::int64_t i) { return of_keys.key_place(i, offset, block_size); });
    if (cache.values.empty()) continue;
    copy_heads(cache.values, of_values,
               [&](std::int64_t i) { return of_values.value_place(i, offset, block_size); });
  }
}

template <class Copy>
void copy_tokens(CpuContext& context, const KvLayer& cache, const AttentionShape& shape,
                 const Tensor& slots, const Tensor& rows, const Copy& copy) {
  context.for_rows(rows[0], 2 * row_bytes(rows), [&](std::int64_t begin, std::int64_t end, int) {
    with_elements(cache.keys.dtype(), [&](auto element) {
      for_tokens<decltype(element)>(cache, shape, slots, rows, begin, end, copy);
    });
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
