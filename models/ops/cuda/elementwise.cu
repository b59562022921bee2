// Operations on single rows, as ops.hpp defines them. Arithmetic is in fp32 whatever the dtype.
#include "models/ops/cuda/common/silu.cuh"
#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/cuda_dense_ops.hpp"
#include "models/ops/cuda/gemm/quantize_row.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

constexpr int row_threads = 256;

template <class T, class Out>
__global__ void embed_rows(const T* table, std::int64_t vocab, const std::int32_t* ids,
                           std::int64_t vocab_begin, std::int64_t width, Out* out) {
  const std::int64_t row = ids[blockIdx.x] - vocab_begin;
  const bool local = row >= 0 && row < vocab;
  Out* to = out + blockIdx.x * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    store(to + i, local ? load(table + row * width + i) + 0.0F : 0.0F);  // turns -0 into +0
  }
}

/// With `x` adds it to the residual first; without, `residual` is only read.
template <class T, class X, bool adds>
__global__ void norm_rows(T* residual, const X* x, const float* weight, float eps,
                          std::int64_t width, T* out) {
  T* row = residual + blockIdx.x * width;
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    if constexpr (adds) store(row + i, load(row + i) + load(x + blockIdx.x * width + i));
    const float value = load(row + i);
    squares += value * value;
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(width) + eps);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    store(out + blockIdx.x * width + i, load(row + i) * scale * weight[i]);
  }
}

constexpr std::int64_t max_unit_width = 1024 * unit;

/// embed_rows, one unit per thread. Grid: rows, and parts of their width.
template <class T, class Out>
__global__ void embed_units(const T* table, std::int64_t vocab, const std::int32_t* ids,
                            std::int64_t vocab_begin, int width, Out* out) {
  begin_early_kernel();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * unit;
  if (column >= width) return;
  const std::int64_t row = ids[blockIdx.x] - vocab_begin;
  float values[unit] = {};
  if (row >= 0 && row < vocab) load_unit(table + row * width + column, values);
#pragma unroll
  for (float& value : values) value += 0.0F;  // turns -0 into +0
  store_unit(out + std::int64_t{blockIdx.x} * width + column, values);
}

/// The sum of a row's squares, and the largest magnitude of a row that becomes codes.
struct RowTotals {
  float squares, largest;
};

/// The totals of all threads of the block, at most 1,024; every thread gets them. All must call,
/// once in a kernel. The sum has the bits of block_sum, by which norms fused into all-reduces add.
template <bool codes>
__device__ __forceinline__ RowTotals totals_of_block(RowTotals own) {
  __shared__ RowTotals parts[32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  own.squares = warp_sum(own.squares);
  if constexpr (codes) own.largest = warp_max(own.largest);
  if (lane == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  RowTotals all = lane < warps ? parts[lane] : RowTotals{};
  all.squares = warp_sum(all.squares);
  if constexpr (codes) all.largest = warp_max(all.largest);
  return all;
}

/// norm_rows for rows that fit a block's registers, one unit per thread. With codes `out` may be
/// null. `blocks_at_once`: of a multiprocessor; with two, each has few registers, and a single row
/// takes longer.
template <class T, class X, bool adds, bool codes, int blocks_at_once>
__global__ void __launch_bounds__(max_unit_width / unit, blocks_at_once)
    norm_units(T* residual, const X* x, const float* weight, float eps, int width, T* out,
               CodedRows coded) {
  const int column = threadIdx.x * unit;
  const std::int64_t at = std::int64_t{blockIdx.x} * width + column;
  const bool there = column < width;
  float values[unit] = {}, weights[unit] = {};
  let_next_kernel_start();
  if (there) load_unit(weight + column, weights);
  wait_for_kernels_before();
  RowTotals totals{};
  if (there) {
    load_unit(residual + at, values);
    if constexpr (adds) {
      float added[unit];
      load_unit(x + at, added);
#pragma unroll
      for (int i = 0; i < unit; ++i) {
        T sum;
        store(&sum, values[i] + added[i]);
        values[i] = load(&sum);
      }
      store_unit(residual + at, values);
    }
#pragma unroll
    for (const float value : values) totals.squares += value * value;
  }
  if constexpr (codes) {
#pragma unroll
    for (int i = 0; i < unit; ++i) values[i] *= weights[i];
    totals.largest = larger(0.0F, values);
  }
  totals = totals_of_block<codes>(totals);
  const float scale = rsqrtf(totals.squares / static_cast<float>(width) + eps);
  const auto rounded = [](float value) { return __bfloat162float(__float2bfloat16_rn(value)); };
  if constexpr (codes) {
    // Rounding keeps the order: the largest of the results is that of the largest factor.
    const CodedRow row(rounded(totals.largest * scale), coded);
    row.store_scale(coded);
    if (!there) return;
#pragma unroll
    for (float& value : values) value = rounded(value * scale);
    if (out != nullptr) store_unit(out + at, values);
    store_codes(coded.codes + at, values, row.factor, coded.kind);
  } else {
    if (!there) return;
#pragma unroll
    for (int i = 0; i < unit; ++i) values[i] *= scale * weights[i];
    store_unit(out + at, values);
  }
}

/// Grid: rows, and parts of their width.
template <class T>
__global__ void silu_mul_units(const T* gate_up, int inner, T* out) {
  begin_early_kernel();
  const int column = (blockIdx.y * blockDim.x + threadIdx.x) * unit;
  if (column >= inner) return;
  const T* row = gate_up + std::int64_t{blockIdx.x} * 2 * inner + column;
  float gates[unit], ups[unit];
  load_unit(row, gates);
  load_unit(row + inner, ups);
#pragma unroll
  for (int i = 0; i < unit; ++i) gates[i] = silu(gates[i]) * ups[i];
  store_unit(out + std::int64_t{blockIdx.x} * inner + column, gates);
}

/// True if a tensor's rows of `width` consist of aligned units.
bool has_units(const Tensor& tensor, std::int64_t width) {
  return width % unit == 0 && reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
}

unsigned unit_threads(std::int64_t width) {
  return static_cast<unsigned>((width / unit + 31) / 32 * 32);
}

/// Launches norm_units, with codes if there is room for them.
template <class T, class X, bool adds>
cudaError_t launch_norm_units(const Tensor& residual, const X* x, const Tensor& weight, float eps,
                              T* out, const std::optional<CodedRows>& codes, cudaStream_t stream) {
  const std::int64_t rows = residual[0], width = residual[1];
  auto* const kernel = !codes                     ? norm_units<T, X, adds, false, 1>
                       : rows > multiprocessors() ? norm_units<T, X, adds, true, 2>
                                                  : norm_units<T, X, adds, true, 1>;
  return launch_early(kernel, {dim3(static_cast<unsigned>(rows)), unit_threads(width)}, stream,
                      static_cast<T*>(residual.data()), x, weight.as<float>(), eps,
                      static_cast<int>(width), out, codes.value_or(CodedRows()));
}

template <class T, class X>
__global__ void add_elements(T* to, const X* x, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) store(to + i, load(to + i) + load(x + i));
}

template <class T>
__global__ void add_bias_rows(T* x, const float* bias, std::int64_t width, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) store(x + i, load(x + i) + bias[i % width]);
}

template <class T>
__global__ void silu_mul_rows(const T* gate_up, std::int64_t inner, std::int64_t count, T* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const T* row = gate_up + i / inner * 2 * inner;
  store(out + i, silu(load(row + i % inner)) * load(row + inner + i % inner));
}

/// The order of parallel/collectives/tree_sum.hpp: sums of powers of two, largest first, folded
/// from the last.
__global__ void tree_sum_parts(const float* x, int parts, std::int64_t count, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sums[16];
  int held = 0;
  for (int part = 0; part < parts; ++part) {
    sums[held++] = x[part * count + i];
    for (int done = part + 1; done % 2 == 0; done /= 2, --held) sums[held - 2] += sums[held - 1];
  }
  for (; held > 1; --held) sums[held - 2] += sums[held - 1];
  out[i] = sums[0];
}

template <class Unit>
__global__ void gather_units(const Unit* x, const std::int32_t* rows, std::int64_t width,
                             Unit* out) {
  const Unit* from = x + std::int64_t{rows[blockIdx.x]} * width;
  Unit* to = out + blockIdx.x * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaDenseOps::do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                            const Tensor& out) {
  if (out.empty()) return;
  with_type(table.dtype(), [&](auto* stored) {
    with_type(out.dtype(), [&](auto* activation) {
      using Stored = element<decltype(stored)>;
      using T = element<decltype(activation)>;
      if (has_units(table, out[1]) && has_units(out, out[1])) {
        const dim3 grid(static_cast<unsigned>(out[0]), blocks_of(out[1], unit * row_threads));
        check(
            launch_early(embed_units<Stored, T>, {grid, row_threads}, stream(),
                         static_cast<const Stored*>(table.data()), table[0], ids.as<std::int32_t>(),
                         vocab_begin, static_cast<int>(out[1]), static_cast<T*>(out.data())),
            "embed");
        return;
      }
      embed_rows<<<static_cast<unsigned>(out[0]), row_threads, 0, stream()>>>(
          static_cast<const Stored*>(table.data()), table[0], ids.as<std::int32_t>(), vocab_begin,
          out[1], static_cast<T*>(out.data()));
    });
  });
  check_launch("embed");
}

void CudaDenseOps::do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                               const Linear* next) {
  if (x.empty()) return;
  const bool units = x[1] <= max_unit_width && has_units(x, x[1]) && has_units(out, x[1]) &&
                     has_units(weight, x[1]);
  const auto codes = units ? room_for_codes(out) : std::nullopt;
  const bool only_codes = codes && reads_only_codes(next);
  with_type(x.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    constexpr float* nothing = nullptr;
    auto* const to = static_cast<T*>(only_codes ? nullptr : out.data());
    if (units) {
      check(launch_norm_units<T, float, false>(x, nothing, weight, eps, to, codes, stream()),
            "rms_norm");
      return;
    }
    norm_rows<T, float, false><<<static_cast<unsigned>(x[0]), row_threads, 0, stream()>>>(
        static_cast<T*>(x.data()), nothing, weight.as<float>(), eps, x[1], to);
  });
  if (codes) set_coded(out, only_codes);
  check_launch("rms_norm");
}

void CudaDenseOps::do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                   float eps, const Tensor& out, const Linear* next) {
  if (x.empty()) return;
  const bool units = x[1] <= max_unit_width && has_units(x, x[1]) && has_units(out, x[1]) &&
                     has_units(residual, x[1]) && has_units(weight, x[1]);
  const auto codes = units ? room_for_codes(out) : std::nullopt;
  const bool only_codes = codes && reads_only_codes(next);
  with_type(residual.dtype(), [&](auto* type) {
    with_type(x.dtype(), [&](auto* added) {
      using T = element<decltype(type)>;
      using X = element<decltype(added)>;
      const X* const addend = static_cast<const X*>(x.data());
      auto* const to = static_cast<T*>(only_codes ? nullptr : out.data());
      if (units) {
        check(launch_norm_units<T, X, true>(residual, addend, weight, eps, to, codes, stream()),
              "add_rms_norm");
        return;
      }
      norm_rows<T, X, true><<<static_cast<unsigned>(x[0]), row_threads, 0, stream()>>>(
          static_cast<T*>(residual.data()), addend, weight.as<float>(), eps, x[1], to);
    });
  });
  if (codes) set_coded(out, only_codes);
  check_launch("add_rms_norm");
}

void CudaDenseOps::do_add(const Tensor& residual, const Tensor& x) {
  if (x.empty()) return;
  with_type(residual.dtype(), [&](auto* type) {
    with_type(x.dtype(), [&](auto* added) {
      using T = element<decltype(type)>;
      using X = element<decltype(added)>;
      add_elements<<<blocks_of(x.elements(), row_threads), row_threads, 0, stream()>>>(
          static_cast<T*>(residual.data()), static_cast<const X*>(x.data()), x.elements());
    });
  });
  check_launch("add");
}

void CudaDenseOps::do_add_bias(const Tensor& x, const Tensor& bias) {
  if (x.empty()) return;
  with_type(x.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    add_bias_rows<<<blocks_of(x.elements(), row_threads), row_threads, 0, stream()>>>(
        static_cast<T*>(x.data()), bias.as<float>(), x[1], x.elements());
  });
  check_launch("add_bias");
}

bool CudaDenseOps::silu_mul_coded(const Tensor& gate_up, const Tensor& out, bool only_codes) {
  const auto room = room_for_codes(out);
  if (!room || !has_units(gate_up, out[1]) || !has_units(out, out[1])) return false;
  check(launch_silu_mul_coded(gate_up.data(), out[0], out[1], only_codes ? nullptr : out.data(),
                              *room, stream()),
        "silu_mul");
  set_coded(out, only_codes);
  return true;
}

void CudaDenseOps::do_silu_mul(const Tensor& gate_up, const Tensor& out) {
  if (out.empty() || silu_mul_coded(gate_up, out, false)) return;
  with_type(out.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    if (has_units(gate_up, out[1]) && has_units(out, out[1])) {
      const dim3 grid(static_cast<unsigned>(out[0]), blocks_of(out[1], unit * row_threads));
      check(launch_early(silu_mul_units<T>, {grid, row_threads}, stream(),
                         static_cast<const T*>(gate_up.data()), static_cast<int>(out[1]),
                         static_cast<T*>(out.data())),
            "silu_mul");
      return;
    }
    silu_mul_rows<<<blocks_of(out.elements(), row_threads), row_threads, 0, stream()>>>(
        static_cast<const T*>(gate_up.data()), out[1], out.elements(), static_cast<T*>(out.data()));
  });
  check_launch("silu_mul");
}

void CudaDenseOps::do_tree_sum(const Tensor& x, const Tensor& out) {
  if (out.empty()) return;
  tree_sum_parts<<<blocks_of(out.elements(), row_threads), row_threads, 0, stream()>>>(
      x.as<float>(), static_cast<int>(x.elements() / out.elements()), out.elements(),
      out.as<float>());
  check_launch("tree_sum");
}

void CudaDenseOps::do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
  if (out.empty()) return;
  const std::int64_t bytes = static_cast<std::int64_t>(out.bytes()) / out[0];
  // Not launched early: where it gathers queries, the attention behind it may read pages as soon as
  // this kernel runs, which the one before it has filled (Work::may_be_new).
  const auto gather = [&](auto unit) {
    using Unit = decltype(unit);
    gather_units<<<static_cast<unsigned>(out[0]), row_threads, 0, stream()>>>(
        static_cast<const Unit*>(x.data()), rows.as<std::int32_t>(),
        bytes / static_cast<std::int64_t>(sizeof(Unit)), static_cast<Unit*>(out.data()));
  };
  if (bytes % 16 == 0) {
    gather(uint4{});
  } else if (bytes % 4 == 0) {
    gather(std::uint32_t{});
  } else {
    gather(std::uint16_t{});
  }
  check_launch("gather_rows");
}

void CudaDenseOps::do_concat_columns(const Tensor& parts, const Tensor& out) {
  if (out.empty()) return;
  const auto rows = static_cast<std::size_t>(out[0]);
  const std::size_t width = parts.bytes() / static_cast<std::size_t>(parts[0]);
  const std::size_t row = out.bytes() / rows;
  for (std::size_t done = 0, part = 0; done < row; done += width, ++part) {
    check(cudaMemcpy2DAsync(static_cast<char*>(out.data()) + done, row,
                            static_cast<const char*>(parts.data()) + part * rows * width, width,
                            std::min(width, row - done), rows, cudaMemcpyDeviceToDevice, stream()),
          "concat_columns");
  }
}

}  // namespace troupe
