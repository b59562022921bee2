// Matrices in 8-bit codes, beside products of the same codes on the CPU.
#include <bit>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/weight_format.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Fp8Products : public BothDevices {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    auto cuda = make_cuda_ops({.device = 0, .dtype = DType::bf16, .encoding = WeightEncoding::fp8});
    ASSERT_TRUE(cuda.ok()) << cuda.error().message;
    gpu_ = *std::move(cuda);
    // In f32 the CPU computes with the codes' own numbers.
    auto cpu = make_cpu_ops({.threads = 2, .dtype = DType::f32});
    ASSERT_TRUE(cpu.ok()) << cpu.error().message;
    cpu_ = *std::move(cpu);
  }

  Result<std::unique_ptr<Linear>> codes(const Tensor& weight) {
    return gpu_->weights().prepare(narrow(weight), 1, WeightEncoding::fp8);
  }
  static HostTensor rows_of_nan(const Shape& shape) {
    HostTensor rows(DType::bf16, shape);
    std::ranges::fill(rows->span<std::uint16_t>(), std::uint16_t{0x7fff});
    return rows;
  }
  /// Of f32 tensors on the GPU.
  void expect_same_numbers(const Tensor& device, const Tensor& expected, const std::string& what) {
    const HostTensor found = back(device), wanted = back(expected);
    ASSERT_EQ(found->elements(), wanted->elements()) << what;
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], wanted->as<float>()[i]) << what << ", element " << i;
    }
  }
  Result<std::unique_ptr<Linear>> rounded_matrix(const Tensor& weight) {
    return cpu_->weights().prepare(rounded_rows(weight), 1, WeightEncoding::plain);
  }
  /// The numbers of codes, not rounded to bf16.
  static HostTensor rounded_rows(const Tensor& x) {
    HostTensor rounded(DType::f32, x.shape());
    for (std::int64_t r = 0; r < x[0]; ++r) {
      const auto* const from = x.as<float>() + r * x[1];
      float largest = 0.0F;
      for (std::int64_t i = 0; i < x[1]; ++i) largest = std::max(largest, std::abs(from[i]));
      const float scale = fp8_row_scale(largest), factor = 1.0F / scale;
      for (std::int64_t i = 0; i < x[1]; ++i) {
        rounded->as<float>()[r * x[1] + i] = e4m3_to_float(float_to_e4m3(from[i] * factor)) * scale;
      }
    }
    return rounded;
  }
};

INSTANTIATE_TEST_SUITE_P(Bf16, Fp8Products, testing::Values(DType::bf16));

TEST_P(Fp8Products, are_those_of_rounded_matrices_at_any_number_of_rows) {
  for (const auto& [n, k] : {std::pair{64, 64},
                             {1024, 2048},
                             {1536, 1040},
                             {4112, 528},
                             {80, 8192},
                             {6144, 4096},
                             {3072, 4608},
                             {4096, 12288},  // k is cut
                             {5120, 2064}}) {
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({300, k});
    auto gpu_weight = codes(weight), cpu_weight = rounded_matrix(weight);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    EXPECT_EQ((*gpu_weight)->bytes(), static_cast<std::size_t>(n * (k + 4)));
    const HostTensor rounded_x = rounded_rows(x);
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {1, 2, 8, 16, 17, 32, 33, 65, 96, 97, 128, 129, 200, 256, 300}) {
      const HostTensor expected(DType::f32, {rows, n});
      cpu_->dense().linear(**cpu_weight, rounded_x->rows(0, rows), expected);
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(DType::bf16, {rows, n});
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), out);
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), own);
      const std::string what = fmt::format("{} rows of {} by {}", rows, k, n);
      expect_equal(out, expected, what);
      expect_equal(own, expected, what);
    }
  }
}

TEST_P(Fp8Products, are_the_same_by_every_tiling_of_many_rows) {
  for (const auto& [n, k] : {std::pair{1040, 2064}, {208, 2048}, {12288, 2064}}) {
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({700, k});
    auto gpu_weight = codes(weight), cpu_weight = rounded_matrix(weight);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const W8a8Matrix* const matrix = static_cast<const CudaLinear&>(**gpu_weight).codes();
    ASSERT_NE(matrix, nullptr);
    const HostTensor expected(DType::f32, {700, n});
    cpu_->dense().linear(**cpu_weight, rounded_rows(x), expected);
    const DeviceTensor gpu_x = activation(x);
    const DeviceTensor x_codes = room(DType::u8, {700, k}), x_scales = room(DType::f32, {700});
    ASSERT_TRUE(gpu_->stream().synchronize().ok());
    ASSERT_EQ(launch_quantize_rows(gpu_x->data(), 700, k,
                                   {x_codes->as<std::uint8_t>(), x_scales->as<float>()}, nullptr),
              cudaSuccess);
    for (const std::int64_t rows : {97, 128, 129, 200, 256, 384, 513, 700}) {
      // Nothing is written behind the rows.
      const DeviceTensor out = activation(random({rows + 1, n}));
      const HostTensor before = back(out);
      ScaledGemm gemm{.weight = matrix->codes->data(),
                      .x = x_codes->data(),
                      .out = out->data(),
                      .rows = rows,
                      .n = n,
                      .k = k,
                      .weight_scales = matrix->scales->as<float>(),
                      .x_scales = x_scales->as<float>()};
      for (const int columns : {64, 96, 128, 192}) {
        for (const PairShares shares : {PairShares::weight, PairShares::x, PairShares::tile}) {
          const std::int64_t tiles = (rows + 127) / 128 * ((n + columns - 1) / columns);
          const bool fits = shares != PairShares::tile || tiles <= cuda::multiprocessors() / 2;
          ASSERT_EQ(cudaMemset(out->data(), 0xff,
                               static_cast<std::size_t>(rows * n) * size_of(DType::bf16)),
                    cudaSuccess);
          ASSERT_EQ(launch_scaled_gemm(gemm, {columns, shares}, nullptr),
                    fits ? cudaSuccess : cudaErrorInvalidValue);
          ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
          if (!fits) continue;
          const std::string what = fmt::format("{} rows of {} by {}, tiles of {} that share {}",
                                               rows, k, n, columns, static_cast<int>(shares));
          expect_equal(out->rows(0, rows), expected->rows(0, rows), what);
          const HostTensor after = back(out);
          for (std::int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(after->as<float>()[rows * n + i], before->as<float>()[rows * n + i]) << what;
          }
        }
      }
    }
  }
}

TEST_P(Fp8Products, write_behind_an_output_only_where_they_may) {
  constexpr std::int64_t n = 1536, k = 1536, all = 400;  // cuBLASLt's
  auto weight = codes(random({n, k}, 0.05F));
  ASSERT_TRUE(weight.ok());
  const HostTensor numbers = random({all, k}), before = random({all, n});
  const DeviceTensor x = activation(numbers);
  auto outputs = gpu_->memory().allocate_outputs(DType::bf16, {all, n});
  ASSERT_TRUE(outputs.ok());
  const DeviceTensor whole = room(DType::bf16, {all, n});
  gpu_->dense().linear(**weight, x, whole);
  const HostTensor expected = back(whole);
  for (const auto& [begin, count] :
       {std::pair{0, 200}, {7, 300}, {0, 384}, {0, 399}, {90, 255}, {30, 300}}) {
    for (const bool may : {false, true}) {
      const DeviceTensor plain = activation(before);
      const Tensor& to = may ? outputs->view() : plain.view();
      gpu_->dense().linear(**weight, x->rows(begin, count), to.rows(begin, count));
      const HostTensor found = back(to);
      for (std::int64_t i = 0; i < all * n; ++i) {
        const std::int64_t row = i / n;
        const bool is_computed = row >= begin && row < begin + count;
        if (!is_computed && (may && row >= begin)) continue;
        const float wanted = is_computed ? expected->as<float>()[i]
                             : may       ? 0.0F
                                         : rounded(before->as<float>()[i]);
        ASSERT_EQ(found->as<float>()[i], wanted)
            << count << " rows from " << begin << (may ? ", may" : "") << ": row " << row
            << ", column " << i % n;
      }
      if (may) outputs = gpu_->memory().allocate_outputs(DType::bf16, {all, n});
    }
  }
}

TEST_P(Fp8Products, are_gated) {
  for (const auto& [inner, k] : {std::pair{48, 80}, {1000, 272}, {9608, 144}, {9608, 2064}}) {
    const HostTensor weight = random({2 * inner, k}, 1.2F / std::sqrt(static_cast<float>(k))),
                     x = random({130, k});
    auto gpu_weight = codes(weight), cpu_weight = rounded_matrix(weight);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const HostTensor rounded_x = rounded_rows(x);
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {1, 9, 40, 64, 90, 97, 128, 130}) {
      const HostTensor cpu_scratch(DType::f32, {rows, 2 * inner}),
          expected(DType::f32, {rows, inner});
      cpu_->dense().linear_gate_up(**cpu_weight, rounded_x->rows(0, rows), cpu_scratch, expected);
      const DeviceTensor scratch = room(DType::bf16, {rows, 2 * inner}),
                         out = room(DType::bf16, {rows, inner});
      gpu_->dense().linear_gate_up(**gpu_weight, gpu_x->rows(0, rows), scratch, out);
      expect_equal(out, expected, fmt::format("{} rows of {} by 2 x {}", rows, k, inner));
    }
  }
}

TEST_P(Fp8Products, of_rows_of_any_magnitude_have_their_own_scales) {
  constexpr std::int64_t n = 128, k = 12288;
  const HostTensor weight = random({n, k}, 0.01F), x = random({40, k});
  for (std::int64_t r = 0; r < 40; ++r) {
    const float factor = r == 7 ? 0.0F : std::ldexp(1.0F, static_cast<int>(r % 20) - 10);
    for (std::int64_t i = 0; i < k; ++i) x->as<float>()[r * k + i] *= factor;
  }
  auto gpu_weight = codes(weight), cpu_weight = rounded_matrix(weight);
  ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
  const HostTensor expected(DType::f32, {40, n});
  cpu_->dense().linear(**cpu_weight, rounded_rows(x), expected);
  const DeviceTensor out = room(DType::f32, {40, n});
  gpu_->dense().linear(**gpu_weight, activation(x), out);
  const HostTensor found = back(out);
  for (std::int64_t r = 0; r < 40; ++r) {
    const float unit = std::ldexp(1.0F, static_cast<int>(r % 20) - 10);
    for (std::int64_t i = 0; i < n; ++i) {
      const float wanted = expected->as<float>()[r * n + i], value = found->as<float>()[r * n + i];
      ASSERT_LE(std::abs(value - wanted), 0.02F * (unit + std::abs(wanted))) << r << ", " << i;
    }
  }
}

// The GEMM of one row makes its codes itself where it can; those of several have them made before.
TEST_P(Fp8Products, of_one_row_have_the_same_bits_as_among_others) {
  enum Row { zeros, infinite, not_a_number, tiny, last_is_largest, ordinary, rows };
  for (const auto& [n, k] : {std::pair{4096, 4096},
                             {4096, 12288},
                             {6144, 2048},
                             {1008, 1040},
                             {4112, 8208},
                             {6144, 8192},  // as many steps of k as a block makes codes of
                             {3072, 4608},
                             {2048, 144},
                             {16, 16}}) {
    const HostTensor numbers = random({rows, k});
    auto* const x = numbers->as<float>();
    for (std::int64_t i = 0; i < k; ++i) {
      x[zeros * k + i] = 0.0F;
      x[tiny * k + i] = rounded(std::ldexp(x[tiny * k + i], -130));
    }
    x[infinite * k + k / 2] = -std::numeric_limits<float>::infinity();
    x[not_a_number * k + k - 1] = std::numeric_limits<float>::quiet_NaN();
    x[last_is_largest * k + k - 1] = -300.0F;
    auto weight = codes(random({n, k}, 0.05F));
    ASSERT_TRUE(weight.ok());
    const DeviceTensor gpu_x = activation(numbers);
    const auto expect_same = [&](const Tensor& all, const auto& multiply, const char* what) {
      multiply(gpu_x, all);
      const HostTensor expected = back(all);
      const std::int64_t width = all[1];
      for (std::int64_t r = 0; r < rows; ++r) {
        const DeviceTensor one = room(all.dtype(), {1, width});
        multiply(gpu_x->rows(r, 1), one);
        const HostTensor found = back(one);
        for (std::int64_t i = 0; i < width; ++i) {
          const float wanted = expected->as<float>()[r * width + i], value = found->as<float>()[i];
          const auto where = [&] {
            return fmt::format("{}: row {}, column {} of {} by {}: {}, not {}", what, r, i, k, n,
                               value, wanted);
          };
          ASSERT_EQ(std::isnan(wanted), r == infinite || r == not_a_number) << where();
          ASSERT_TRUE(std::isnan(wanted) ? std::isnan(value)
                                         : std::bit_cast<std::uint32_t>(value) ==
                                               std::bit_cast<std::uint32_t>(wanted))
              << where();
        }
      }
    };
    const auto linear = [&](const Tensor& from, const Tensor& to) {
      gpu_->dense().linear(**weight, from, to);
    };
    expect_same(room(DType::f32, {rows, n}), linear, "f32");
    expect_same(room(DType::bf16, {rows, n}), linear, "bf16");
    const auto gated = [&](const Tensor& from, const Tensor& to) {
      gpu_->dense().linear_gate_up(**weight, from, room(DType::bf16, {from[0], n}), to);
    };
    expect_same(room(DType::bf16, {rows, n / 2}), gated, "gated");
  }
}

TEST_P(Fp8Products, take_no_codes_of_a_row_that_another_product_has_overwritten) {
  constexpr std::int64_t k = 1024;
  auto weight = codes(random({k, k}, 0.05F));
  ASSERT_TRUE(weight.ok());
  const DeviceTensor scale = exact(random({k}));
  const DeviceTensor x = activation(random({1, k})), row = room(DType::bf16, {1, k});
  const DeviceTensor out = room(DType::f32, {1, k}), expected = room(DType::f32, {1, k});
  auto plain = gpu_->weights().prepare(random({k, k}, 0.05F), 1, WeightEncoding::plain);
  ASSERT_TRUE(plain.ok());
  for (const Linear* const overwriting : {weight->get(), plain->get()}) {
    gpu_->dense().rms_norm(x, scale, 1e-6F, row);
    gpu_->dense().linear(**weight, row, out);
    gpu_->dense().linear(*overwriting, x, row);
    gpu_->dense().linear(**weight, row, out);
    const DeviceTensor copy = activation(back(row));
    gpu_->dense().linear(**weight, copy, expected);
    expect_same_numbers(out, expected, "one row");
  }
}

TEST_P(Fp8Products, take_codes_that_a_norm_or_an_activation_has_made) {
  constexpr std::int64_t n = 256, k = 1024;
  auto weight = codes(random({n, k}, 0.05F));
  auto gate_up = codes(random({2 * k, k}, 0.05F));
  ASSERT_TRUE(weight.ok() && gate_up.ok());
  const DeviceTensor scale = exact(random({k})), bias = exact(random({k}, 3.0F));
  for (const std::int64_t rows : {1, 40, 200}) {
    const HostTensor before = random({rows, k});
    const DeviceTensor x = activation(random({rows, k})), residual = activation(before);
    const DeviceTensor made = room(DType::bf16, {rows, k}), copy = room(DType::bf16, {rows, k});
    const DeviceTensor out = room(DType::f32, {rows, n}), expected = room(DType::f32, {rows, n});
    // Of a copy nobody has made codes before.
    const auto expect_as_of_a_copy = [&](const char* what) {
      HostTensor numbers(DType::bf16, {rows, k});
      gpu_->memory().download(made, numbers);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      gpu_->memory().upload(numbers, copy);
      gpu_->dense().linear(**weight, copy, expected);
      expect_same_numbers(out, expected, fmt::format("{}, {} rows", what, rows));
    };
    const HostTensor unread = rows_of_nan({rows, k});
    const auto expect_as_of_codes_alone = [&](const char* what, const auto& make) {
      gpu_->memory().upload(unread, copy);
      make();
      gpu_->dense().linear(**weight, copy, expected);
      expect_same_numbers(expected, out, fmt::format("{}, codes alone, {} rows", what, rows));
    };
    gpu_->dense().add_rms_norm(residual, x, scale, 1e-6F, made);
    gpu_->dense().linear(**weight, made, out);
    gpu_->dense().linear(**weight, made, out);
    expect_as_of_a_copy("norm");
    const DeviceTensor sum = activation(before);
    expect_as_of_codes_alone(
        "norm", [&] { gpu_->dense().add_rms_norm(sum, x, scale, 1e-6F, copy, weight->get()); });
    EXPECT_TRUE(std::isnan(back(copy)->as<float>()[0])) << "rows were written";
    expect_same_numbers(sum, residual, "residual");
    gpu_->dense().rms_norm(x, scale, 1e-6F, made);
    gpu_->dense().linear(**weight, made, out);
    expect_as_of_codes_alone("norm without a residual",
                             [&] { gpu_->dense().rms_norm(x, scale, 1e-6F, copy, weight->get()); });
    gpu_->dense().rms_norm(x, scale, 1e-6F, made);
    gpu_->dense().add_bias(made, bias);
    gpu_->dense().linear(**weight, made, out);
    expect_as_of_a_copy("changed since");
    const DeviceTensor scratch = room(DType::bf16, {rows, 2 * k});
    gpu_->dense().linear_gate_up(**gate_up, x, scratch, made);
    gpu_->dense().linear(**weight, made, out);
    expect_as_of_a_copy("activation");
    expect_as_of_codes_alone("activation", [&] {
      gpu_->dense().linear_gate_up(**gate_up, x, scratch, copy, weight->get());
    });
  }
}

TEST_P(Fp8Products, of_other_matrices_take_the_numbers_of_a_norm_before_them) {
  constexpr std::int64_t k = 1024, rows = 40;
  auto plain = gpu_->weights().prepare(random({k, k}, 0.05F), 1, WeightEncoding::plain);
  ASSERT_TRUE(plain.ok());
  const DeviceTensor scale = exact(random({k})), x = activation(random({rows, k})),
                     made = room(DType::bf16, {rows, k});
  const DeviceTensor out = room(DType::f32, {rows, k}), expected = room(DType::f32, {rows, k});
  gpu_->dense().rms_norm(x, scale, 1e-6F, made);
  gpu_->dense().linear(**plain, made, expected);
  gpu_->memory().upload(rows_of_nan({rows, k}), made);
  gpu_->dense().rms_norm(x, scale, 1e-6F, made, plain->get());
  gpu_->dense().linear(**plain, made, out);
  expect_same_numbers(out, expected, "plain");
}

TEST_P(Fp8Products, of_rows_of_which_only_codes_were_made_are_next_or_refused) {
  constexpr std::int64_t k = 1024, rows = 200;
  enum Maker { activation_of_gates, norm, norm_of_sum };
  for (const Maker maker : {activation_of_gates, norm, norm_of_sum}) {
    for (const bool norms_next : {false, true}) {
      SetUp();  // Ops keep their first error
      auto weight = codes(random({k, k}, 0.05F)), gate_up = codes(random({2 * k, k}, 0.05F));
      ASSERT_TRUE(weight.ok() && gate_up.ok());
      const DeviceTensor x = activation(random({rows, k})),
                         residual = activation(random({rows, k}));
      const DeviceTensor made = room(DType::bf16, {rows, k}), out = room(DType::bf16, {rows, k}),
                         scratch = room(DType::bf16, {rows, 2 * k}), scale = exact(random({k}));
      DenseOps& dense = gpu_->dense();
      const auto make = [&](const Linear* next) {
        if (maker == norm) return dense.rms_norm(x, scale, 1e-6F, made, next);
        if (maker == norm_of_sum) return dense.add_rms_norm(residual, x, scale, 1e-6F, made, next);
        dense.linear_gate_up(**gate_up, x, scratch, made, next);
      };
      make(weight->get());
      dense.linear(**weight, made, out);
      ASSERT_TRUE(gpu_->stream().synchronize().ok()) << maker;
      make(weight->get());
      if (norms_next) {
        dense.rms_norm(x, scale, 1e-6F, made);
      } else {
        dense.linear(**weight, x, out);
      }
      EXPECT_FALSE(gpu_->stream().synchronize().ok()) << maker << ", " << norms_next;
    }
  }
}

TEST_P(Fp8Products, of_many_rows_are_cut_into_no_more_tiles_than_run_at_once_if_k_is_cut) {
  for (const std::int64_t n : {512, 4096, 6144, 24576}) {
    EXPECT_EQ(best_tiling(ScaledGemm{.rows = 256, .n = n, .k = 1024}), std::nullopt);
    EXPECT_EQ(best_tiling(ScaledGemm{.rows = 2000, .n = n, .k = 4096}), std::nullopt);
    for (std::int64_t rows = 97; rows <= 1024; ++rows) {
      const auto tiling = best_tiling(ScaledGemm{.rows = rows, .n = n, .k = 4096});
      if (!tiling || tiling->shares != PairShares::tile) continue;
      const std::int64_t tiles = (rows + 127) / 128 * ((n + tiling->columns - 1) / tiling->columns);
      ASSERT_LE(tiles, cuda::multiprocessors() / 2) << rows << " rows by " << n;
    }
  }
}

TEST_P(Fp8Products, of_shapes_that_have_no_codes_are_plain) {
  const HostTensor weight = random({24, 40}, 0.1F), x = random({5, 40});
  auto gpu_weight = codes(weight);
  auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
  ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
  const HostTensor expected(DType::f32, {5, 24});
  cpu_->dense().linear(**cpu_weight, x, expected);
  const DeviceTensor out = room(DType::f32, {5, 24});
  gpu_->dense().linear(**gpu_weight, activation(x), out);
  expect_equal(out, expected, "plain");
}

}  // namespace
}  // namespace troupe
