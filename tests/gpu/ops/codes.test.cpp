// Matrices of codes, beside products of the codes' own numbers in double precision.
#include <fmt/format.h>

#include "models/ops/coded_panels.hpp"
#include "tests/gpu/ops/both_devices.hpp"
#include "tests/support/random_codes.hpp"

namespace troupe {
namespace {

class CodeProducts : public BothDevices {
 protected:
  /// x . numbers^T of some rows, and for each element the sum of the products' magnitudes.
  struct Expected {
    std::vector<double> sums, magnitudes;
  };
  static Expected product(const Tensor& numbers, const Tensor& x) {
    const std::int64_t n = numbers[0], k = numbers[1];
    Expected all;
    for (std::int64_t r = 0; r < x[0]; ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double one = double{x.as<float>()[r * k + i]} * numbers.as<float>()[j * k + i];
          sum += one;
          magnitude += std::abs(one);
        }
        all.sums.push_back(sum);
        all.magnitudes.push_back(magnitude);
      }
    }
    return all;
  }
  static double silu(double x) { return x / (1.0 + std::exp(-x)); }

  std::unique_ptr<Linear> load(const StoredMatrix& matrix,
                               WeightEncoding encoding = WeightEncoding::plain) {
    auto linear = gpu_->weights().load(matrix, 1, encoding);
    EXPECT_TRUE(linear.ok()) << linear.error().message;
    const auto loaded = gpu_->weights().finish_loading({});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return *std::move(linear);
  }

  /// Up to 384 rows are multiplied with codes, more with numbers rounded to bf16.
  static double tolerance(std::int64_t rows, double sum, double magnitude) {
    return 1e-4 + std::abs(sum) * 1e-5 + magnitude * (rows > 384 ? 2e-3 : 2e-5);
  }

  void expect_product(const Linear& weight, const Tensor& numbers, const HostTensor& x,
                      std::int64_t rows, const std::string& what) {
    const std::int64_t n = numbers[0];
    const Expected expected = product(numbers, x->rows(0, rows));
    const DeviceTensor device_x = activation(x->rows(0, rows));
    const DeviceTensor exact = room(DType::f32, {rows, n}), rounded = room(DType::bf16, {rows, n});
    gpu_->dense().linear(weight, device_x, exact);
    gpu_->dense().linear(weight, device_x, rounded);
    const HostTensor found = back(exact), found_rounded = back(rounded);
    for (std::int64_t i = 0; i < rows * n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double limit = tolerance(rows, expected.sums[at], expected.magnitudes[at]);
      ASSERT_NEAR(found->as<float>()[i], expected.sums[at], limit)
          << what << ", row " << i / n << ", column " << i % n;
      ASSERT_NEAR(found_rounded->as<float>()[i], expected.sums[at],
                  limit + std::abs(expected.sums[at]) * 0x1p-8)
          << what << " in bf16, row " << i / n << ", column " << i % n;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Bf16, CodeProducts, testing::Values(DType::bf16));

TEST_P(CodeProducts, are_those_of_the_numbers_of_every_format_and_shape) {
  for (const CodesCase& c : codes_cases) {
    for (const auto& [n, k] : {std::pair{48, 704}, {64, 4096}, {1528, 136}, {304, 2312}}) {
      const RandomCodes made = random_codes(engine_, c, n, k);
      const auto weight = load(made.matrix);
      const bool is_coded = c.scheme.group_columns != 24;
      EXPECT_EQ(weight->kernel().find("codes") != std::string::npos, is_coded) << weight->kernel();
      const CodedForm form = coded_form(made.matrix, WeightEncoding::plain).form.value();
      const HostTensor numbers = troupe::numbers_of(made.matrix, form);
      const HostTensor x = random({400, k});
      if (!is_coded) continue;
      for (const std::int64_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 130, 400}) {
        if (n * k > 200'000 && rows > 9 && rows != 65) continue;
        expect_product(*weight, numbers, x, rows,
                       fmt::format("{}, {} rows of {} by {}", c.what, rows, k, n));
        if (HasFatalFailure()) break;
      }
    }
  }
}

TEST_P(CodeProducts, of_many_rows_of_the_matrix) {
  constexpr std::int64_t n = 25608, k = 136;
  for (const std::size_t i : {4U, 6U, 9U, 11U, 12U, 0U}) {
    const CodesCase& c = codes_cases[i];
    const RandomCodes made = random_codes(engine_, c, n, k);
    const auto weight = load(made.matrix);
    const HostTensor numbers = troupe::numbers_of(
        made.matrix, coded_form(made.matrix, WeightEncoding::plain).form.value());
    const HostTensor x = random({70, k});
    for (const std::int64_t rows : {1, 4, 8, 12, 70}) {
      expect_product(*weight, numbers, x, rows, fmt::format("{}, {} rows", c.what, rows));
    }
  }
}

TEST_P(CodeProducts, of_columns_that_begin_inside_a_group) {
  for (const std::size_t i : {4U, 6U, 8U, 11U, 12U, 0U}) {
    const CodesCase& c = codes_cases[i];
    const RandomCodes made = random_codes(engine_, c, 32, 704);
    const StoredMatrix part = columns_of(made.matrix, 352, 352);
    const auto weight = load(part);
    EXPECT_NE(weight->kernel().find("codes"), std::string::npos) << weight->kernel();
    const HostTensor numbers =
        troupe::numbers_of(part, coded_form(part, WeightEncoding::plain).form.value());
    const HostTensor x = random({40, 352});
    for (const std::int64_t rows : {1, 40}) {
      expect_product(*weight, numbers, x, rows, fmt::format("{}, {} rows", c.what, rows));
    }
  }
}

TEST_P(CodeProducts, are_gated) {
  for (const WeightEncoding encoding : {WeightEncoding::int4, WeightEncoding::int8}) {
    for (const auto& [inner, k] : {std::pair{48, 80}, {1000, 272}, {3000, 512}, {20, 64}}) {
      const HostTensor numbers_of_file = random({2 * inner, k}, 0.1F);
      const StoredMatrix matrix = stored_matrix_of(numbers_of_file, DType::bf16);
      const auto weight = load(matrix, encoding);
      const HostTensor numbers =
          troupe::numbers_of(matrix, coded_form(matrix, encoding).form.value());
      const HostTensor x = random({130, k});
      const Expected both = product(numbers, x);
      for (const std::int64_t rows : {1, 7, 8, 9, 40, 64, 90, 128, 130}) {
        const DeviceTensor scratch = room(DType::bf16, {rows, 2 * inner}),
                           out = room(DType::bf16, {rows, inner});
        gpu_->dense().linear_gate_up(*weight, activation(x->rows(0, rows)), scratch, out);
        const HostTensor found = back(out);
        for (std::int64_t i = 0; i < rows * inner; ++i) {
          const auto gate = static_cast<std::size_t>(i / inner * 2 * inner + i % inner);
          const double up = both.sums[gate + static_cast<std::size_t>(inner)];
          const double wanted = silu(both.sums[gate]) * up;
          ASSERT_NEAR(found->as<float>()[i], wanted, 2e-2 * (1.0 + std::abs(wanted)))
              << rows << " rows of " << k << " by 2 x " << inner << ", row " << i / inner
              << ", column " << i % inner << ", gate " << both.sums[gate] << ", up " << up;
        }
      }
    }
  }
}

// Gates and ups are in tensors of their own, which have scales of their own.
TEST_P(CodeProducts, of_nvfp4_are_gated_with_a_scale_for_each_row) {
  constexpr std::int64_t inner = 504, k = 272;
  RandomCodes gate = random_codes(engine_, codes_cases[12], inner, k),
              up = random_codes(engine_, codes_cases[12], inner, k);
  StoredMatrix matrix = gate.matrix;
  matrix.rows *= 2;
  matrix.parts.push_back(up.matrix.parts.front());
  matrix.parts.back().matrix.tensor_scale *= 0.3F;
  const auto weight = load(matrix);
  EXPECT_NE(weight->kernel().find("nvfp4 codes"), std::string::npos) << weight->kernel();
  const HostTensor numbers =
      troupe::numbers_of(matrix, coded_form(matrix, WeightEncoding::plain).form.value());
  const HostTensor x = random({130, k}, 0.3F);
  const Expected both = product(numbers, x);
  for (const std::int64_t rows : {1, 2, 7, 16, 33, 64, 130}) {
    const DeviceTensor scratch = room(DType::bf16, {rows, 2 * inner}),
                       out = room(DType::bf16, {rows, inner});
    gpu_->dense().linear_gate_up(*weight, activation(x->rows(0, rows)), scratch, out);
    const HostTensor found = back(out);
    for (std::int64_t i = 0; i < rows * inner; ++i) {
      const auto at = static_cast<std::size_t>(i / inner * 2 * inner + i % inner);
      const double wanted = silu(both.sums[at]) * both.sums[at + std::size_t{inner}];
      ASSERT_NEAR(found->as<float>()[i], wanted, 2e-2 * (1.0 + std::abs(wanted)))
          << rows << " rows, row " << i / inner << ", column " << i % inner;
    }
  }
}

TEST_P(CodeProducts, of_large_matrices_take_parts_of_them) {
  constexpr std::int64_t n = 5000, k = 8192;  // more than becomes bf16 at once
  const HostTensor numbers_of_file = random({n, k}, 0.02F);
  for (const WeightEncoding encoding : {WeightEncoding::int4, WeightEncoding::int8}) {
    auto prepared = gpu_->weights().prepare(narrow(numbers_of_file), 1, encoding);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const StoredMatrix matrix = stored_matrix_of(numbers_of_file, DType::bf16);
    const CodedForm form = coded_form(matrix, encoding).form.value();
    const HostTensor x = random({1000, k});
    CodedRow row;
    for (const std::int64_t rows : {1, 8, 130, 1000}) {
      const DeviceTensor out = room(DType::f32, {rows, n});
      gpu_->dense().linear(**prepared, activation(x->rows(0, rows)), out);
      const HostTensor found = back(out);
      for (const std::int64_t j : {0, 1, 8, 127, 128, 2559, 2560, 4095, 4096, 4999}) {
        read_coded_row(matrix, form, j, row);
        for (std::int64_t r = 0; r < rows; r += rows > 8 ? 37 : 1) {
          double sum = 0, magnitude = 0;
          for (std::int64_t i = 0; i < k; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double one = double{x->as<float>()[r * k + i]} *
                               number_of(form.kind, row.codes[at]) *
                               row.scales[static_cast<std::size_t>(form.group_of(i))].scale;
            sum += one;
            magnitude += std::abs(one);
          }
          ASSERT_NEAR(found->as<float>()[r * n + j], sum, tolerance(rows, sum, magnitude))
              << rows << " rows, row " << r << ", column " << j;
        }
      }
    }
  }
}

TEST_P(CodeProducts, are_the_same_each_time) {
  // Of more matrices than the device's cache holds, so that copies arrive late and out of order.
  constexpr std::int64_t n = 4096, k = 4096, rows = 128;
  constexpr int matrices = 12, rounds = 2000;
  std::vector<std::unique_ptr<Linear>> weights;
  for (int i = 0; i < matrices; ++i) {
    auto prepared = gpu_->weights().prepare(narrow(random({n, k}, 0.02F)), 1, WeightEncoding::int4);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    weights.push_back(*std::move(prepared));
  }
  const DeviceTensor x = activation(random({rows, k}));
  std::vector<DeviceTensor> outs;
  std::vector<HostTensor> first;
  for (const auto& weight : weights) {
    outs.push_back(room(DType::f32, {rows, n}));
    gpu_->dense().linear(*weight, x, outs.back());
    first.push_back(back(outs.back()));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      gpu_->dense().linear(*weights[i], x, outs[i]);
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const HostTensor last = back(outs[i]);
    for (std::int64_t j = 0; j < rows * n; ++j) {
      ASSERT_EQ(last->as<float>()[j], first[i]->as<float>()[j])
          << "matrix " << i << ", row " << j / n << ", column " << j % n;
    }
  }
}

TEST_P(CodeProducts, are_not_of_deterministic_gpus) {
  auto deterministic = make_cuda_ops({.device = 0, .dtype = DType::bf16, .deterministic = true});
  ASSERT_TRUE(deterministic.ok()) << deterministic.error().message;
  gpu_ = *std::move(deterministic);
  const RandomCodes made = random_codes(engine_, codes_cases[4], 32, 128);
  EXPECT_EQ(load(made.matrix)->kernel(), "bf16, as deterministic GEMMs have no codes");
}

}  // namespace
}  // namespace troupe
