// Adds up the outputs of a token's experts.
#include "models/ops/cuda/common/vec8.cuh"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

/// Selects the choices to add: all, or those of local experts.
struct Added {
  const std::int32_t* ids = nullptr;  // null: all
  std::int64_t first_expert = 0, experts = 0;

  __device__ bool has(std::int64_t pair) const {
    if (ids == nullptr) return true;
    const std::int64_t expert = ids[pair] - first_expert;
    return expert >= 0 && expert < experts;
  }
};

template <class X>
__device__ __forceinline__ void load_columns(const X* from, float (&value)[1]) {
  value[0] = load(from);
}
template <class X>
__device__ __forceinline__ void load_columns(const X* from, float (&values)[unit]) {
  load_unit(from, values);
}
template <class Out>
__device__ __forceinline__ void store_columns(Out* to, const float (&value)[1]) {
  store(to, value[0]);
}
template <class Out>
__device__ __forceinline__ void store_columns(Out* to, const float (&values)[unit]) {
  store_unit(to, values);
}

constexpr int at_once = 8;  // choices whose rows a thread loads before it uses one

/// Grid: tokens, and parts of their width; `columns` per thread.
template <int columns, class X, class Out>
__global__ void combine_rows(const X* x, const float* weights, Added added, int top_k,
                             std::int64_t width, Out* out) {
  begin_early_kernel();
  const std::int64_t token = blockIdx.x;
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * columns;
  if (column >= width) return;
  const X* from = x + token * top_k * width + column;
  float sums[columns] = {};
  bool first = true;
  for (int begin = 0; begin < top_k; begin += at_once) {
    bool is_added[at_once];
    float weight[at_once], values[at_once][columns];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const bool there = begin + i < top_k;
      const std::int64_t pair = token * top_k + begin + i;
      is_added[i] = there && added.has(pair);
      weight[i] = there ? weights[pair] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (is_added[i]) load_columns(from + (begin + i) * width, values[i]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (!is_added[i]) continue;
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        sums[c] = first ? values[i][c] * weight[i] : fmaf(values[i][c], weight[i], sums[c]);
      }
      first = false;
    }
  }
  store_columns(out + token * width + column, sums);
}

cudaError_t launch_combine(const Tensor& x, const Tensor& weights, const Added& added,
                           const Tensor& out, cudaStream_t stream) {
  const auto is_aligned = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
  };
  const bool in_units = out[1] % unit == 0 && is_aligned(x) && is_aligned(out);
  cudaError_t error = cudaSuccess;
  with_type(x.dtype(), [&](auto* from) {
    with_type(out.dtype(), [&](auto* to) {
      using X = element<decltype(from)>;
      using Out = element<decltype(to)>;
      constexpr unsigned threads = 128;
      const dim3 grid(static_cast<unsigned>(out[0]),
                      blocks_of(out[1], (in_units ? unit : 1) * threads));
      error = launch_early(in_units ? combine_rows<unit, X, Out> : combine_rows<1, X, Out>,
                           {grid, threads}, stream, static_cast<const X*>(x.data()),
                           weights.as<float>(), added, weights[1], out[1],
                           static_cast<Out*>(out.data()));
    });
  });
  return error;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaMoeOps::do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  if (out.empty()) return;
  check(launch_combine(x, weights, {}, out, stream()), "combine");
}

void CudaMoeOps::do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                                  const Tensor& out) {
  if (out.empty()) return;
  const Added added{choices.ids.as<std::int32_t>(), choices.first_expert, local};
  check(launch_combine(x, choices.weights, added, out, stream()), "combine_local");
}

}  // namespace troupe
