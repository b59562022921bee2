// Rows of the KV cache for other ranks, and theirs into it.
#include <cstdint>

#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/kv_code.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int most_threads = 256;

/// A cache in units of `Unit`: pages [blocks, kv_heads, block_size, units of a head]. `values` is
/// null in a latent cache.
template <class Unit>
struct PagedUnits {
  Unit* keys;
  Unit* values;
  int kv_heads, block_size, head_units;
};

/// A block copies a token: its keys, head after head, then its values.
template <bool gather, class Unit>
__global__ void __launch_bounds__(most_threads)
    copy_kv_rows(PagedUnits<Unit> cache, const std::int32_t* slots, Unit* rows, int row_units) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t slot = slots[token];
  const std::int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
  const int units_of_keys = cache.kv_heads * cache.head_units;
  Unit* const row = rows + token * row_units;
  for (int i = static_cast<int>(threadIdx.x); i < row_units; i += static_cast<int>(blockDim.x)) {
    const bool is_key = i < units_of_keys;
    const int unit = is_key ? i : i - units_of_keys;
    const std::int64_t head = block * cache.kv_heads + unit / cache.head_units;
    Unit* const cached = (is_key ? cache.keys : cache.values) +
                         (head * cache.block_size + offset) * cache.head_units +
                         unit % cache.head_units;
    if constexpr (gather) {
      row[i] = *cached;
    } else {
      *cached = row[i];
    }
  }
}

/// copy_kv_rows of codes: behind the codes of each head's key or value is its scale. Units of two
/// bytes.
template <bool gather>
__global__ void __launch_bounds__(most_threads)
    copy_coded_rows(std::uint16_t* keys, std::uint16_t* values, CodedPages pages,
                    const std::int32_t* slots, std::uint16_t* rows) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t slot = slots[token];
  const int block = slot / pages.block_size, offset = slot % pages.block_size;
  const int code_units = pages.head_dim / 2, head_units = code_units + 1;
  const int row_units = 2 * pages.kv_heads * head_units;
  std::uint16_t* const row = rows + token * row_units;
  for (int i = static_cast<int>(threadIdx.x); i < row_units; i += static_cast<int>(blockDim.x)) {
    const int head = i / head_units, unit = i % head_units;
    const bool is_key = head < pages.kv_heads;
    const std::int64_t page = pages.page(block, is_key ? head : head - pages.kv_heads);
    const std::int64_t in_page =
        unit < code_units ? pages.row(offset) + 2 * unit : pages.scale(offset);
    std::uint16_t* const cached = (is_key ? keys : values) + (page + in_page) / 2;
    if constexpr (gather) {
      row[i] = *cached;
    } else {
      *cached = row[i];
    }
  }
}

template <bool gather, class Unit>
void launch(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
            const Tensor& rows, cudaStream_t stream) {
  const std::int64_t element = static_cast<std::int64_t>(size_of(cache.keys.dtype()));
  const auto unit = static_cast<std::int64_t>(sizeof(Unit));
  const PagedUnits<Unit> pages{static_cast<Unit*>(cache.keys.data()),
                               static_cast<Unit*>(cache.values.data()),
                               static_cast<int>(shape.kv_heads), static_cast<int>(cache.keys[2]),
                               static_cast<int>(shape.head_dim * element / unit)};
  const auto row_units = static_cast<int>(rows[1] * element / unit);
  const int threads = row_units < most_threads ? (row_units + 31) / 32 * 32 : most_threads;
  copy_kv_rows<gather><<<static_cast<unsigned>(rows[0]), threads, 0, stream>>>(
      pages, slots.as<std::int32_t>(), static_cast<Unit*>(rows.data()), row_units);
}

template <bool gather>
void copy_rows(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
               const Tensor& rows, cudaStream_t stream) {
  if (rows.empty()) return;
  if (is_code(cache.keys.dtype())) {
    copy_coded_rows<gather><<<static_cast<unsigned>(rows[0]), most_threads, 0, stream>>>(
        static_cast<std::uint16_t*>(cache.keys.data()),
        static_cast<std::uint16_t*>(cache.values.data()),
        {static_cast<int>(shape.kv_heads), static_cast<int>(cache.keys[2]),
         static_cast<int>(shape.head_dim)},
        slots.as<std::int32_t>(), static_cast<std::uint16_t*>(rows.data()));
    return;
  }
  const auto head_bytes = static_cast<std::size_t>(shape.head_dim) * size_of(cache.keys.dtype());
  if (head_bytes % sizeof(uint4) == 0) {
    launch<gather, uint4>(cache, shape, slots, rows, stream);
  } else {
    launch<gather, std::uint16_t>(cache, shape, slots, rows, stream);
  }
}

}  // namespace
}  // namespace cuda

void CudaAttentionOps::do_gather_kv(const KvLayer& cache, const AttentionShape& shape,
                                    const Tensor& slots, const Tensor& rows) {
  cuda::copy_rows<true>(cache, shape, slots, rows, stream());
  check_launch("gather_kv");
}

void CudaAttentionOps::do_scatter_kv(const Tensor& rows, const AttentionShape& shape,
                                     const Tensor& slots, const KvLayer& cache) {
  cuda::copy_rows<false>(cache, shape, slots, rows, stream());
  check_launch("scatter_kv");
}

}  // namespace troupe
