// Biases of experts, as moe_ops.hpp defines them.
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int row_threads = 256;

/// A block a sorted row; rows after the last expert's are left as they are.
template <class T>
__global__ void add_bias_of_experts(T* x, const std::int32_t* offsets, int experts,
                                    const float* bias, std::int64_t width) {
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  if (row >= offsets[experts]) return;
  int expert = 0, end = experts;  // the last one that begins at or before the row
  while (end - expert > 1) {
    const int middle = (expert + end) / 2;
    if (offsets[middle] <= row) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  T* to = x + row * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    store(to + i, load(to + i) + bias[expert * width + i]);
  }
}

/// A block a token.
template <class T>
__global__ void add_bias_of_chosen(const std::int32_t* ids, const float* weights, int top_k,
                                   const float* bias, std::int64_t width, T* out) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = load(out + token * width + i);
    for (int c = 0; c < top_k; ++c) {
      sum += weights[token * top_k + c] * bias[ids[token * top_k + c] * width + i];
    }
    store(out + token * width + i, sum);
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaMoeOps::do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) {
  if (x.empty()) return;
  with_type(x.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    add_bias_of_experts<<<static_cast<unsigned>(x[0]), row_threads, 0, stream()>>>(
        static_cast<T*>(x.data()), batch.offsets.as<std::int32_t>(), static_cast<int>(bias[0]),
        bias.as<float>(), bias[1]);
  });
  check_launch("add_expert_bias");
}

void CudaMoeOps::do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                                    const Tensor& out) {
  if (out.empty()) return;
  with_type(out.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    add_bias_of_chosen<<<static_cast<unsigned>(out[0]), row_threads, 0, stream()>>>(
        ids.as<std::int32_t>(), weights.as<float>(), static_cast<int>(ids[1]), bias.as<float>(),
        out[1], static_cast<T*>(out.data()));
  });
  check_launch("add_chosen_bias");
}

}  // namespace troupe
