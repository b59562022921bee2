#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"

namespace troupe {

/// Random tensors from one seed, which every failing expectation should print (SCOPED_TRACE).
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  HostTensor normal(Shape shape, float scale = 1.0F) {
    HostTensor tensor(DType::f32, shape);
    std::normal_distribution<float> distribution(0.0F, scale);
    for (float& x : tensor->span<float>()) x = distribution(engine_);
    return tensor;
  }
  HostTensor normal_bf16(Shape shape, float scale = 1.0F) {
    const HostTensor wide = normal(shape, scale);
    HostTensor tensor(DType::bf16, shape);
    for (std::int64_t i = 0; i < wide->elements(); ++i) {
      tensor->as<BFloat16>()[i] = to_bfloat16(wide->as<float>()[i]);
    }
    return tensor;
  }
  std::mt19937& engine() { return engine_; }
  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

inline HostTensor widened(const Tensor& tensor) {
  HostTensor wide(DType::f32, tensor.shape());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    wide->as<float>()[i] = to_float(tensor.as<BFloat16>()[i]);
  }
  return wide;
}

inline HostTensor integers(const std::vector<std::int32_t>& values, Shape shape) {
  HostTensor tensor(DType::i32, shape);
  std::copy(values.begin(), values.end(), tensor->as<std::int32_t>());
  return tensor;
}
inline HostTensor integers(const std::vector<std::int32_t>& values) {
  return integers(values, Shape{static_cast<std::int64_t>(values.size())});
}

inline HostTensor floats(Shape shape) { return {DType::f32, shape}; }

/// x . weight^T in double precision.
inline std::vector<double> product(const Tensor& weight, const Tensor& x) {
  const std::int64_t n = weight[0], k = weight[1];
  std::vector<double> out(static_cast<std::size_t>(x[0] * n));
  for (std::int64_t i = 0; i < x[0]; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += double{x.as<float>()[i * k + l]} * weight.as<float>()[j * k + l];
      }
      out[static_cast<std::size_t>(i * n + j)] = sum;
    }
  }
  return out;
}

/// Columns [begin, begin + count) of a matrix.
inline HostTensor columns_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  HostTensor out = floats({x[0], count});
  for (std::int64_t i = 0; i < x[0]; ++i) {
    std::copy_n(x.as<float>() + i * x[1] + begin, count, out->as<float>() + i * count);
  }
  return out;
}

/// Cosines and sines of [positions, dim / 2] angles with a theta of 10,000, one half after the
/// other.
inline HostTensor rope_table(std::int64_t positions, std::int64_t dim) {
  HostTensor rope = floats({positions, dim});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < dim / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * i / dim);
      rope->as<float>()[p * dim + i] = static_cast<float>(std::cos(angle));
      rope->as<float>()[p * dim + dim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return rope;
}

inline std::unique_ptr<Ops> make_ops(int threads = 1, DType dtype = DType::f32,
                                     CpuIsa isa = CpuIsa::best) {
  auto ops = make_cpu_ops({threads, dtype, isa});
  EXPECT_TRUE(ops.ok()) << (ops.ok() ? "" : ops.error().message);
  return std::move(ops).value();
}

/// The instruction sets that this CPU has, of those that kernels are written for.
inline std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> supported{CpuIsa::avx2};
  if (cpu_supports(CpuIsa::avx512)) supported.push_back(CpuIsa::avx512);
  return supported;
}

/// Expects |found - expected| <= tolerance * (1 + |expected|) for all elements.
inline void expect_near(const Tensor& found, const std::vector<double>& expected,
                        double tolerance) {
  ASSERT_EQ(found.elements(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = found.as<float>()[i];
    ASSERT_LE(std::abs(value - expected[i]), tolerance * (1.0 + std::abs(expected[i])))
        << "element " << i << " of " << found.shape().to_string() << ": expected " << expected[i]
        << ", found " << value;
  }
}

inline void expect_same_bits(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.bytes(), expected.bytes());
  const auto* a = static_cast<const std::uint32_t*>(found.data());
  const auto* b = static_cast<const std::uint32_t*>(expected.data());
  for (std::size_t i = 0; i < found.bytes() / 4; ++i) {
    ASSERT_EQ(a[i], b[i]) << "element " << i << " of " << found.shape().to_string();
  }
}

}  // namespace troupe
