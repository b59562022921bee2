#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {

/// Ops of both devices and tensors on both, of one dtype: f32, or bf16, for which the CPU computes
/// in f32 with the same rounded inputs.
class BothDevices : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto cuda = make_cuda_ops({.device = 0, .dtype = GetParam()});
    if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
    gpu_ = *std::move(cuda);
    auto cpu = make_cpu_ops({.threads = 2, .dtype = GetParam()});
    ASSERT_TRUE(cpu.ok()) << cpu.error().message;
    cpu_ = *std::move(cpu);
  }

  bool is_bf16() const { return GetParam() == DType::bf16; }
  float rounded(float value) const { return is_bf16() ? to_float(to_bfloat16(value)) : value; }

  /// Random numbers that both dtypes represent exactly.
  HostTensor random(Shape shape, float scale = 1.0F) {
    HostTensor tensor(DType::f32, shape);
    std::normal_distribution<float> distribution(0.0F, scale);
    for (float& x : tensor->span<float>()) x = rounded(distribution(engine_));
    return tensor;
  }
  /// The f32 tensor in bf16.
  static HostTensor narrow(const Tensor& host) {
    HostTensor narrowed(DType::bf16, host.shape());
    convert(host, narrowed);
    return narrowed;
  }
  static HostTensor copy_of(const Tensor& host) {
    HostTensor copy(host.dtype(), host.shape());
    std::copy_n(static_cast<const std::byte*>(host.data()), host.bytes(),
                static_cast<std::byte*>(copy->data()));
    return copy;
  }
  std::vector<std::int32_t> shuffled(std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    std::ranges::shuffle(values, engine_);
    return values;
  }
  static HostTensor integers(const std::vector<std::int32_t>& values, Shape shape) {
    HostTensor tensor(DType::i32, shape);
    std::ranges::copy(values, tensor->as<std::int32_t>());
    return tensor;
  }

  static std::vector<std::int32_t> numbers_of(const std::vector<SequenceSpan>& spans) {
    std::vector<std::int32_t> numbers;
    for (const SequenceSpan& span : spans) {
      numbers.insert(numbers.end(),
                     {span.first_row, span.rows, span.first_position, span.block_offset});
    }
    return numbers;
  }

  /// Copies to the GPU: an activation (in the Ops' dtype), or the tensor as it is.
  DeviceTensor activation(const Tensor& host) { return put(host, GetParam()); }
  DeviceTensor exact(const Tensor& host) { return put(host, host.dtype()); }
  DeviceTensor room(DType dtype, Shape shape) {
    auto tensor = gpu_->memory().allocate(dtype, shape);
    EXPECT_TRUE(tensor.ok()) << tensor.error().message;
    const HostTensor poison(DType::u8, {static_cast<std::int64_t>((*tensor)->bytes())});
    std::ranges::fill(poison->span<std::uint8_t>(), std::uint8_t{0x7f});
    gpu_->memory().upload(poison, Tensor((*tensor)->data(), DType::u8, poison->shape()));
    EXPECT_TRUE(gpu_->stream().synchronize().ok());
    return *std::move(tensor);
  }

  HostTensor back(const Tensor& device) {
    const HostTensor raw(device.dtype(), device.shape());
    gpu_->memory().download(device, raw);
    const auto done = gpu_->stream().synchronize();
    EXPECT_TRUE(done.ok()) << done.error().message;
    if (device.dtype() != DType::bf16) return copy_of(raw);
    HostTensor wide(DType::f32, device.shape());
    for (std::int64_t i = 0; i < wide->elements(); ++i) {
      wide->as<float>()[i] = to_float(raw->as<BFloat16>()[i]);
    }
    return wide;
  }

  void expect_equal(const Tensor& device, const Tensor& expected, const std::string& what) {
    const HostTensor found = back(device);
    ASSERT_EQ(found->elements(), expected.elements()) << what;
    // A bf16 result is rounded once more than the CPU's, and so are some inputs of GEMMs.
    const double tolerance = is_bf16() ? 2e-2 : 2e-5;
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      const double wanted = expected.as<float>()[i], value = found->as<float>()[i];
      ASSERT_LE(std::abs(value - wanted), tolerance * (1.0 + std::abs(wanted)))
          << what << ", element " << i << " of " << expected.shape().to_string() << ": expected "
          << wanted << ", found " << value;
    }
  }
  void expect_same_integers(const Tensor& device, const Tensor& expected, const std::string& what) {
    const HostTensor found = back(device);
    for (std::int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_EQ(found->as<std::int32_t>()[i], expected.as<std::int32_t>()[i])
          << what << ", element " << i;
    }
  }

  std::unique_ptr<Ops> cpu_, gpu_;
  std::mt19937 engine_{7};

 private:
  DeviceTensor put(const Tensor& host, DType dtype) {
    auto tensor = gpu_->memory().allocate(dtype, host.shape());
    EXPECT_TRUE(tensor.ok()) << tensor.error().message;
    if (dtype == DType::bf16 && host.dtype() == DType::f32) {
      const HostTensor narrowed = narrow(host);
      gpu_->memory().upload(narrowed, *tensor);
      EXPECT_TRUE(gpu_->stream().synchronize().ok());
    } else {
      gpu_->memory().upload(host, *tensor);
      EXPECT_TRUE(gpu_->stream().synchronize().ok());
    }
    return *std::move(tensor);
  }
};

}  // namespace troupe
