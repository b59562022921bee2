// Matrices in int8 codes times rows in such codes, beside exact sums of the same codes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"
#include "tests/gpu/ops/both_devices.hpp"
#include "tests/support/random_codes.hpp"

namespace troupe {
namespace {

/// Rows in codes, on the host.
struct Rows {
  std::int64_t count = 0, k = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
};

Rows codes_of(const Tensor& x) {
  Rows rows{.count = x[0], .k = x[1], .codes = {}, .scales = {}};
  for (std::int64_t r = 0; r < x[0]; ++r) {
    const auto* const from = x.as<float>() + r * x[1];
    float largest = 0.0F;
    for (std::int64_t i = 0; i < x[1]; ++i) largest = std::max(largest, std::abs(from[i]));
    const float scale = largest > 0.0F ? largest / 127.0F : 1.0F, factor = 1.0F / scale;
    for (std::int64_t i = 0; i < x[1]; ++i) {
      rows.codes.push_back(static_cast<std::int8_t>(std::nearbyint(from[i] * factor)));
    }
    rows.scales.push_back(scale);
  }
  return rows;
}

/// x . weight^T: [x.count, weight.count].
std::vector<double> product(const Rows& weight, const Rows& x) {
  std::vector<double> all;
  for (std::int64_t r = 0; r < x.count; ++r) {
    for (std::int64_t j = 0; j < weight.count; ++j) {
      const std::int8_t* const left = x.codes.data() + r * x.k;
      const std::int8_t* const right = weight.codes.data() + j * x.k;
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < x.k; ++i) sum += left[i] * right[i];
      all.push_back(static_cast<double>(sum) * x.scales[static_cast<std::size_t>(r)] *
                    weight.scales[static_cast<std::size_t>(j)]);
    }
  }
  return all;
}

class Int8Products : public BothDevices {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    auto cuda = make_cuda_ops({.device = 0,
                               .dtype = DType::bf16,
                               .encoding = WeightEncoding::w8a8,
                               .widens_codes = true});
    ASSERT_TRUE(cuda.ok()) << cuda.error().message;
    gpu_ = *std::move(cuda);
  }

  std::unique_ptr<Linear> codes(const Tensor& weight) {
    auto made = gpu_->weights().prepare(narrow(weight), 1, WeightEncoding::w8a8);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *std::move(made);
  }
  std::unique_ptr<Linear> load(const StoredMatrix& matrix, WeightEncoding encoding) {
    auto linear = gpu_->weights().load(matrix, 1, encoding);
    EXPECT_TRUE(linear.ok()) << linear.error().message;
    const auto loaded = gpu_->weights().finish_loading({});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return *std::move(linear);
  }
  static const W8a8Matrix& matrix_of(const Linear& weight) {
    return *static_cast<const CudaLinear&>(weight).codes();
  }

  /// Sums are exact: their scales round twice in fp32, and the result once in its dtype.
  void expect_products(const Tensor& device, const std::vector<double>& expected,
                       const std::string& what) {
    const HostTensor found = back(device);
    const double tolerance = device.dtype() == DType::bf16 ? 0x1.02p-8 : 0x1p-21;
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      const double wanted = expected[static_cast<std::size_t>(i)];
      ASSERT_NEAR(found->as<float>()[i], wanted, tolerance * std::abs(wanted) + 1e-30)
          << what << ", row " << i / device[1] << ", column " << i % device[1];
    }
  }
  void expect_same_bits(const Tensor& device, const Tensor& expected, const std::string& what) {
    const HostTensor found = back(device), wanted = back(expected);
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found->as<float>()[i]),
                std::bit_cast<std::uint32_t>(wanted->as<float>()[i]))
          << what << ", element " << i;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Bf16, Int8Products, testing::Values(DType::bf16));

TEST_P(Int8Products, are_of_codes_that_are_rounded_to_nearest_even) {
  constexpr std::int64_t rows = 40;
  for (const std::int64_t k : {16, 1040, 4096, 12288, 40960}) {
    const HostTensor x = random({rows, k});
    for (std::int64_t i = 0; i < k; ++i) {
      x->as<float>()[3 * k + i] = 0.0F;
      x->as<float>()[5 * k + i] = rounded(std::ldexp(x->as<float>()[5 * k + i], 30));
    }
    // The scale is 1, so that halves are ties.
    for (std::int64_t i = 0; i < k; ++i) x->as<float>()[7 * k + i] = static_cast<float>(i % 20) / 2;
    x->as<float>()[7 * k] = 127.0F;
    const Rows expected = codes_of(x);
    x->as<float>()[4 * k + k / 2] = std::numeric_limits<float>::infinity();
    x->as<float>()[6 * k + k - 1] = std::numeric_limits<float>::quiet_NaN();
    const DeviceTensor from = activation(x), to = room(DType::u8, {rows, k}),
                       scales = room(DType::f32, {rows});
    ASSERT_EQ(launch_quantize_rows(from->data(), rows, k,
                                   {.codes = to->as<std::uint8_t>(),
                                    .scales = scales->as<float>(),
                                    .kind = CodeKind::int8},
                                   nullptr),
              cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const HostTensor found = back(to), found_scales = back(scales);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float scale = found_scales->as<float>()[r];
      ASSERT_EQ(std::isnan(scale), r == 4 || r == 6) << k << " columns, row " << r;
      if (std::isnan(scale)) continue;
      ASSERT_EQ(scale, expected.scales[static_cast<std::size_t>(r)]) << k << " columns, row " << r;
      for (std::int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(static_cast<std::int8_t>(found->as<std::uint8_t>()[r * k + i]),
                  expected.codes[static_cast<std::size_t>(r * k + i)])
            << k << " columns, row " << r << ", column " << i;
      }
    }
  }
}

TEST_P(Int8Products, are_exact_at_any_number_of_rows) {
  for (const auto& [n, k, most] : {std::tuple{64, 64, 2000},
                                   {1024, 2048, 300},
                                   {208, 2064, 2000},
                                   {1536, 1040, 300},
                                   {16, 16, 1030},
                                   {4112, 528, 200},
                                   {80, 8192, 1030},
                                   {320, 12288, 300}}) {  // k is cut
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({most, k});
    const auto made = codes(weight);
    EXPECT_EQ(made->kernel(), "int8 codes, activations as int8 (W8A8)");
    EXPECT_EQ(made->bytes(), static_cast<std::size_t>(n * (k + 4)));
    EXPECT_TRUE(made->rounds_rows());
    const std::vector<double> expected = product(codes_of(weight), codes_of(x));
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows :
         {1, 2, 8, 16, 17, 33, 65, 96, 97, 128, 129, 200, 256, 300, 513, 1030, 2000}) {
      if (rows > most) continue;
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(DType::bf16, {rows, n});
      gpu_->dense().linear(*made, gpu_x->rows(0, rows), out);
      gpu_->dense().linear(*made, gpu_x->rows(0, rows), own);
      const std::string what = fmt::format("{} rows of {} by {}", rows, k, n);
      expect_products(out, expected, what + " in f32");
      expect_products(own, expected, what);
    }
  }
}

TEST_P(Int8Products, are_the_same_by_every_tiling_of_many_rows) {
  constexpr std::int64_t most = 1100;
  for (const auto& [n, k] :
       {std::pair{1040, 2064}, {208, 2048}, {264, 16}, {6144, 144}, {520, 528}}) {
    const HostTensor weight = random({n, k}, 0.05F), x = random({most, k});
    const Rows rows_of_weight = codes_of(weight);
    const std::vector<double> expected = product(rows_of_weight, codes_of(x));
    const HostTensor weight_codes(DType::u8, {n, k}), weight_scales(DType::f32, {n});
    std::ranges::copy(rows_of_weight.codes,
                      reinterpret_cast<std::int8_t*>(weight_codes->as<std::uint8_t>()));
    std::ranges::copy(rows_of_weight.scales, weight_scales->as<float>());
    const DeviceTensor gpu_weight = exact(weight_codes), gpu_scales = exact(weight_scales);
    const DeviceTensor gpu_x = activation(x);
    const DeviceTensor x_codes = room(DType::u8, {most, k}), x_scales = room(DType::f32, {most});
    ASSERT_EQ(launch_quantize_rows(gpu_x->data(), most, k,
                                   {.codes = x_codes->as<std::uint8_t>(),
                                    .scales = x_scales->as<float>(),
                                    .kind = CodeKind::int8},
                                   nullptr),
              cudaSuccess);
    for (const std::int64_t written : {97, 128, 129, 256, 384, 700, 1100}) {
      // Nothing is written behind the rows.
      const DeviceTensor out = activation(random({written + 1, n}));
      const HostTensor before = back(out);
      const ScaledGemm gemm{.weight = gpu_weight->data(),
                            .x = x_codes->data(),
                            .out = out->data(),
                            .rows = written,
                            .n = n,
                            .k = k,
                            .weight_scales = gpu_scales->as<float>(),
                            .x_scales = x_scales->as<float>(),
                            .kind = CodeKind::int8};
      ASSERT_TRUE(best_tiling(gemm));
      for (const int columns : {64, 96, 128, 192, 256}) {
        for (const PairShares shares : {PairShares::weight, PairShares::x, PairShares::tile}) {
          const std::int64_t tiles = (written + 127) / 128 * ((n + columns - 1) / columns);
          const bool fits = shares != PairShares::tile ||
                            (tiles <= cuda::multiprocessors() / 2 && columns < 256 && k > 128);
          ASSERT_EQ(cudaMemset(out->data(), 0xff,
                               static_cast<std::size_t>(written * n) * size_of(DType::bf16)),
                    cudaSuccess);
          ASSERT_EQ(launch_scaled_gemm(gemm, {columns, shares}, nullptr),
                    fits ? cudaSuccess : cudaErrorInvalidValue);
          ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
          if (!fits) continue;
          const std::string what = fmt::format("{} rows of {} by {}, tiles of {} that share {}",
                                               written, k, n, columns, static_cast<int>(shares));
          expect_products(out->rows(0, written), expected, what);
          const HostTensor after = back(out);
          for (std::int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(after->as<float>()[written * n + i], before->as<float>()[written * n + i])
                << what;
          }
        }
      }
    }
  }
}

TEST_P(Int8Products, are_gated) {
  for (const auto& [inner, k] : {std::pair{48, 80}, {1000, 272}, {9608, 144}, {2600, 2064}}) {
    const HostTensor weight = random({2 * inner, k}, 1.2F / std::sqrt(static_cast<float>(k))),
                     x = random({130, k});
    const auto made = codes(weight);
    const std::vector<double> products = product(codes_of(weight), codes_of(x));
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {1, 9, 40, 64, 90, 97, 128, 130}) {
      const HostTensor expected(DType::f32, {rows, inner});
      for (std::int64_t i = 0; i < rows * inner; ++i) {
        const auto gate = static_cast<std::size_t>(i / inner * 2 * inner + i % inner);
        const double of_gate = products[gate],
                     up = products[gate + static_cast<std::size_t>(inner)];
        expected->as<float>()[i] = static_cast<float>(of_gate / (1.0 + std::exp(-of_gate)) * up);
      }
      const DeviceTensor scratch = room(DType::bf16, {rows, 2 * inner}),
                         out = room(DType::bf16, {rows, inner});
      gpu_->dense().linear_gate_up(*made, gpu_x->rows(0, rows), scratch, out);
      expect_equal(out, expected, fmt::format("{} rows of {} by 2 x {}", rows, k, inner));
    }
  }
}

// The GEMM of one row makes its codes itself where it can; those of several have them made before.
TEST_P(Int8Products, of_one_row_have_the_same_bits_as_among_others) {
  for (const auto& [n, k] : {std::pair{4096, 4096},
                             {4096, 12288},
                             {1008, 1040},
                             {4112, 8208},
                             {6144, 8192},  // as many steps of k as a block makes codes of
                             {2048, 144},
                             {16, 16}}) {
    constexpr std::int64_t rows = 4;
    const HostTensor numbers = random({rows, k});
    for (std::int64_t i = 0; i < k; ++i) numbers->as<float>()[i] = 0.0F;
    numbers->as<float>()[2 * k + k - 1] = -300.0F;
    const auto made = codes(random({n, k}, 0.05F));
    const DeviceTensor x = activation(numbers);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const DeviceTensor all = room(dtype, {rows, n});
      gpu_->dense().linear(*made, x, all);
      for (std::int64_t r = 0; r < rows; ++r) {
        const DeviceTensor one = room(dtype, {1, n});
        gpu_->dense().linear(*made, x->rows(r, 1), one);
        expect_same_bits(one, all->rows(r, 1), fmt::format("row {} of {} by {}", r, k, n));
      }
    }
  }
}

TEST_P(Int8Products, take_codes_that_a_norm_or_an_activation_has_made) {
  constexpr std::int64_t n = 256, k = 1024;
  const auto made = codes(random({n, k}, 0.05F)), gate_up = codes(random({2 * k, k}, 0.05F));
  const DeviceTensor scale = exact(random({k}));
  for (const std::int64_t rows : {1, 40, 200, 1500}) {
    const DeviceTensor x = activation(random({rows, k})), residual = activation(random({rows, k}));
    const DeviceTensor row = room(DType::bf16, {rows, k}), copy = room(DType::bf16, {rows, k});
    const DeviceTensor out = room(DType::bf16, {rows, n}), expected = room(DType::bf16, {rows, n});
    // Nobody has made codes of a copy before.
    const auto expect_as_of_a_copy = [&](const char* what) {
      HostTensor numbers(DType::bf16, {rows, k});
      gpu_->memory().download(row, numbers);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      gpu_->memory().upload(numbers, copy);
      gpu_->dense().linear(*made, copy, expected);
      expect_same_bits(out, expected, fmt::format("{}, {} rows", what, rows));
    };
    gpu_->dense().add_rms_norm(residual, x, scale, 1e-6F, row);
    gpu_->dense().linear(*made, row, out);
    expect_as_of_a_copy("norm");
    const DeviceTensor scratch = room(DType::bf16, {rows, 2 * k});
    gpu_->dense().linear_gate_up(*gate_up, x, scratch, row);
    gpu_->dense().linear(*made, row, out);
    expect_as_of_a_copy("activation");
    gpu_->dense().linear_gate_up(*gate_up, x, scratch, copy, made.get());
    gpu_->dense().linear(*made, copy, expected);
    expect_same_bits(expected, out, fmt::format("codes alone, {} rows", rows));
  }
}

TEST_P(Int8Products, are_of_a_checkpoints_codes_as_they_are) {
  constexpr std::int64_t n = 272, k = 1040, rows = 140;
  const HostTensor x = random({rows, k});
  for (const CodesCase& c : codes_cases) {
    const RandomCodes stored = random_codes(engine_, c, n, k);
    const auto made = load(stored.matrix, WeightEncoding::plain_w8a8);
    const CodedForm form = coded_form(stored.matrix, WeightEncoding::plain_w8a8).form.value();
    EXPECT_EQ(made->rounds_rows(), form.rounds_rows && form.group_columns == 0) << c.what;
    if (!made->rounds_rows()) {
      EXPECT_EQ(made->kernel().find("W8A8"), std::string::npos) << c.what << made->kernel();
      continue;
    }
    Rows weight{.count = n, .k = k, .codes = {}, .scales = {}};
    for (std::int64_t r = 0; r < n; ++r) {
      CodedRow row;
      read_coded_row(stored.matrix, form, r, row);
      for (const std::uint8_t code : row.codes) {
        weight.codes.push_back(static_cast<std::int8_t>(code));
      }
      weight.scales.push_back(row.scales.front().scale);
    }
    const DeviceTensor out = room(DType::bf16, {rows, n});
    gpu_->dense().linear(*made, activation(x), out);
    expect_products(out, product(weight, codes_of(x)), c.what);
  }
}

TEST_P(Int8Products, are_those_of_rows_that_are_not_rounded_once_widened) {
  for (const auto& [n, k] : {std::pair{1536, 1040}, {64, 64}, {80, 2048}}) {
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({130, k});
    const auto made = codes(weight);
    ASSERT_TRUE(gpu_->weights().widen(*made).ok());
    EXPECT_FALSE(made->rounds_rows());
    EXPECT_EQ(made->kernel(), "int8 codes, activations as bf16 (W8A16)");
    const Rows rows_of_weight = codes_of(weight);
    HostTensor expected(DType::f32, {130, n});
    for (std::int64_t i = 0; i < 130 * n; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        sum += double{x->as<float>()[i / n * k + j]} *
               rows_of_weight.codes[static_cast<std::size_t>(i % n * k + j)];
      }
      expected->as<float>()[i] =
          static_cast<float>(sum * rows_of_weight.scales[static_cast<std::size_t>(i % n)]);
    }
    for (const std::int64_t rows : {1, 2, 30, 130}) {
      const DeviceTensor out = room(DType::bf16, {rows, n});
      gpu_->dense().linear(*made, activation(x->rows(0, rows)), out);
      expect_equal(out, expected->rows(0, rows), fmt::format("{} rows of {} by {}", rows, k, n));
    }
  }
}

TEST_P(Int8Products, of_shapes_that_do_not_fit_leave_rows_as_they_are) {
  EXPECT_EQ(codes(random({24, 40}, 0.1F))->kernel(), "int8 codes, activations as bf16 (W8A16)");
  EXPECT_EQ(codes(random({20, 44}, 0.1F))->kernel(), "bf16");
}

}  // namespace
}  // namespace troupe
