// Operations of DenseOps that only some families need, as dense_ops.hpp defines them: a thread an
// element, or a block a row. Arithmetic is in fp32 whatever the dtype.
#include "models/ops/cuda/cuda_dense_ops.hpp"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int row_threads = 256;

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

/// x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ float gelu_tanh(float x) {
  return x * sigmoid(2.0F * 0.7978845608F * (x + 0.044715F * x * x * x));
}

template <Activation activation>
__device__ float activated(float first, float up) {
  if constexpr (activation == Activation::gelu_tanh_gated) return gelu_tanh(first) * up;
  if constexpr (activation == Activation::gelu_tanh) return gelu_tanh(first);
  if constexpr (activation == Activation::gelu) {
    return 0.5F * first * (1.0F + erff(first * 0.70710678F));
  }
  const float gate = fminf(first, 7.0F), bounded = fminf(fmaxf(up, -7.0F), 7.0F);
  return gate * sigmoid(1.702F * gate) * (bounded + 1.0F);
}

template <class T, Activation activation, bool gated>
__global__ void activate_elements(const T* x, std::int64_t inner, std::int64_t count, T* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t at = gated ? i / inner * 2 * inner + i % inner : i;
  store(out + i, activated<activation>(load(x + at), gated ? load(x + at + inner) : 0.0F));
}

/// `bias` may be null.
template <class T>
__global__ void layer_norm_rows(const T* x, const float* weight, const float* bias, float eps,
                                std::int64_t width, T* out) {
  const T* row = x + blockIdx.x * width;
  float sum = 0.0F;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += load(row + i);
  const float mean = block_sum(sum) / static_cast<float>(width);
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float centred = load(row + i) - mean;
    squares += centred * centred;
  }
  const float factor = rsqrtf(block_sum(squares) / static_cast<float>(width) + eps);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = (load(row + i) - mean) * factor * weight[i];
    store(out + blockIdx.x * width + i, bias == nullptr ? value : value + bias[i]);
  }
}

template <class T>
__global__ void scale_elements(T* x, float factor, float soft_cap, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float value = load(x + i) * factor;
  store(x + i, soft_cap > 0.0F ? soft_cap * tanhf(value / soft_cap) : value);
}

template <class T, class In>
__global__ void gate_each_row(T* x, const In* input, const float* weight, std::int64_t inputs,
                              std::int64_t width) {
  float products = 0.0F;
  for (std::int64_t i = threadIdx.x; i < inputs; i += blockDim.x) {
    products += load(input + blockIdx.x * inputs + i) * weight[i];
  }
  const float factor = sigmoid(block_sum(products));
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    T* element = x + blockIdx.x * width + i;
    store(element, load(element) * factor);
  }
}

/// Calls body with an integral constant of `activation`, which is not silu_gated.
template <class Body>
void with_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::gelu_tanh_gated:
      return body(std::integral_constant<Activation, Activation::gelu_tanh_gated>());
    case Activation::gelu_tanh:
      return body(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::gelu:
      return body(std::integral_constant<Activation, Activation::gelu>());
    default:
      return body(std::integral_constant<Activation, Activation::clamped_gated>());
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

void CudaDenseOps::do_activate(const Tensor& x, Activation activation, const Tensor& out) {
  if (out.empty()) return;
  with_type(out.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    with_activation(activation, [&](auto chosen) {
      constexpr Activation value = decltype(chosen)::value;
      activate_elements<T, value, is_gated(value)>
          <<<blocks_of(out.elements(), row_threads), row_threads, 0, stream()>>>(
              static_cast<const T*>(x.data()), out[1], out.elements(), static_cast<T*>(out.data()));
    });
  });
  check_launch("activate");
}

void CudaDenseOps::do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 float eps, const Tensor& out) {
  if (x.empty()) return;
  with_type(x.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    layer_norm_rows<<<static_cast<unsigned>(x[0]), row_threads, 0, stream()>>>(
        static_cast<const T*>(x.data()), weight.as<float>(),
        bias.empty() ? nullptr : bias.as<float>(), eps, x[1], static_cast<T*>(out.data()));
  });
  check_launch("layer_norm");
}

void CudaDenseOps::do_scale(const Tensor& x, float factor, float soft_cap) {
  if (x.empty()) return;
  with_type(x.dtype(), [&](auto* type) {
    using T = element<decltype(type)>;
    scale_elements<<<blocks_of(x.elements(), row_threads), row_threads, 0, stream()>>>(
        static_cast<T*>(x.data()), factor, soft_cap, x.elements());
  });
  check_launch("scale");
}

void CudaDenseOps::do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) {
  if (x.empty()) return;
  with_type(x.dtype(), [&](auto* type) {
    with_type(input.dtype(), [&](auto* read) {
      using T = element<decltype(type)>;
      using In = element<decltype(read)>;
      gate_each_row<<<static_cast<unsigned>(x[0]), row_threads, 0, stream()>>>(
          static_cast<T*>(x.data()), static_cast<const In*>(input.data()), weight.as<float>(),
          weight[0], x[1]);
    });
  });
  check_launch("gate_rows");
}

}  // namespace troupe
