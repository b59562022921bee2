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

/// The keys or the values of a cache of codes, in units of two bytes.
struct CodedUnits {
  std::uint16_t* pages;
  CodedPages layout;

  /// The units of a head's row: its codes', and one of its scale behind them.
  __host__ __device__ int head_units() const { return layout.row_bytes / 2 + 1; }
  __host__ __device__ int row_units() const { return layout.kv_heads * head_units(); }
  /// The place of unit i of a position, whose heads' rows are counted one behind the other.
  __device__ std::uint16_t* at(std::int64_t block, int offset, int i) const {
    const int head = i / head_units(), unit = i % head_units();
    const std::int64_t in_page =
        2 * unit < layout.row_bytes ? layout.row(offset) + 2 * unit : layout.scale(offset);
    return pages + (layout.page(block, head) + in_page) / 2;
  }
};

/// copy_kv_rows of codes.
template <bool gather>
__global__ void __launch_bounds__(most_threads)
    copy_coded_rows(CodedUnits keys, CodedUnits values, const std::int32_t* slots,
                    std::uint16_t* rows) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t slot = slots[token];
  const int block_size = keys.layout.block_size;
  const int units_of_keys = keys.row_units(), row_units = units_of_keys + values.row_units();
  std::uint16_t* const row = rows + token * row_units;
  for (int i = static_cast<int>(threadIdx.x); i < row_units; i += static_cast<int>(blockDim.x)) {
    const bool is_key = i < units_of_keys;
    std::uint16_t* const cached =
        (is_key ? keys : values)
            .at(slot / block_size, slot % block_size, is_key ? i : i - units_of_keys);
    if constexpr (gather) {
      row[i] = *cached;
    } else {
      *cached = row[i];
    }
  }
}

/// The units of keys (`others`: the values), or of values (`others`: the keys).
CodedUnits units_of(const Tensor& pages, const Tensor& others, const AttentionShape& shape) {
  const auto row_bytes = [&](const Tensor& of) {
    return static_cast<int>(shape.row_layout(of.dtype()).elements);
  };
  return {static_cast<std::uint16_t*>(pages.data()),
          {static_cast<int>(shape.kv_heads), static_cast<int>(pages[2]), row_bytes(pages),
           row_bytes(others)}};
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
        units_of(cache.keys, cache.values, shape), units_of(cache.values, cache.keys, shape),
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
