// The sum of what a token's experts made.
#include "models/ops/cuda/cuda_ops_class.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

template <class X>
__device__ __forceinline__ void load_unit(const X* from, float (&value)[1]) {
  value[0] = load(from);
}
__device__ __forceinline__ void load_unit(const float* from, float (&values)[4]) {
  *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ void load_unit(const bf16* from, float (&values)[4]) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
  const float2 low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.x));
  const float2 high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.y));
  values[0] = low.x, values[1] = low.y, values[2] = high.x, values[3] = high.y;
}

/// Which choices are added: all, or those of local experts.
struct Added {
  const std::int32_t* ids = nullptr;  // null: all
  std::int64_t first_expert = 0, experts = 0;

  __device__ bool has(std::int64_t pair) const {
    if (ids == nullptr) return true;
    const std::int64_t expert = ids[pair] - first_expert;
    return expert >= 0 && expert < experts;
  }
};

/// Grid: tokens, and parts of their width; `unit` columns a thread.
template <int unit, class X, class Out>
__global__ void combine_rows(const X* x, const float* weights, Added added, int top_k,
                             std::int64_t width, Out* out) {
  begin_early_kernel();
  const std::int64_t token = blockIdx.x;
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * unit;
  if (column >= width) return;
  const X* from = x + token * top_k * width + column;
  float sums[unit] = {};
  bool first = true;
  for (int c = 0; c < top_k; ++c) {
    if (!added.has(token * top_k + c)) continue;
    const float weight = weights[token * top_k + c];
    float values[unit];
    load_unit(from + c * width, values);
#pragma unroll
    for (int i = 0; i < unit; ++i) {
      sums[i] = first ? values[i] * weight : fmaf(values[i], weight, sums[i]);
    }
    first = false;
  }
#pragma unroll
  for (int i = 0; i < unit; ++i) store(out + token * width + column + i, sums[i]);
}

cudaError_t launch_combine(const Tensor& x, const Tensor& weights, const Added& added,
                           const Tensor& out, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_type(x.dtype(), [&](auto* from) {
    with_type(out.dtype(), [&](auto* to) {
      using X = element<decltype(from)>;
      using Out = element<decltype(to)>;
      const auto run = [&](auto* kernel, std::int64_t unit) {
        constexpr unsigned threads = 128;
        const dim3 grid(static_cast<unsigned>(out[0]), blocks_of(out[1], unit * threads));
        error = launch_early(kernel, {grid, threads}, stream, static_cast<const X*>(x.data()),
                             weights.as<float>(), added, weights[1], out[1],
                             static_cast<Out*>(out.data()));
      };
      if (out[1] % 4 == 0) {
        run(combine_rows<4, X, Out>, 4);
      } else {
        run(combine_rows<1, X, Out>, 1);
      }
    });
  });
  return error;
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaOps::combine(const Tensor& x, const Tensor& weights, const Tensor& out) {
  if (out.empty()) return;
  check(launch_combine(x, weights, {}, out, stream()), "combine");
}

void CudaOps::combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                            const Tensor& out) {
  if (out.empty()) return;
  const Added added{choices.ids.as<std::int32_t>(), choices.first_expert, local};
  check(launch_combine(x, choices.weights, added, out, stream()), "combine_local");
}

}  // namespace troupe
