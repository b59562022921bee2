#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "models/ops/attention_ops.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {

/// Pages of a cache of codes: those of `table`, or with `places` of table[places[i]]. Both
/// are on the device.
struct CodedSource {
  const KvLayer& cache;
  const std::int32_t* table;
  const std::int32_t* places = nullptr;
  std::int64_t kv_heads, head_dim, block_size;
};

/// What of them becomes numbers, and in which order.
struct WidenedPages {
  std::int64_t pages;
  Slice heads;
  /// [heads][pages][block_size][head_dim]; otherwise pages go before heads, as in a cache of bf16.
  bool by_head = false;
};

/// Enqueues the numbers of codes, rounded to bf16, to `keys` and `values`. head_dim is a multiple
/// of 16.
cudaError_t widen_pages(const CodedSource& source, const WidenedPages& what, __nv_bfloat16* keys,
                        __nv_bfloat16* values, cudaStream_t stream);

}  // namespace troupe
