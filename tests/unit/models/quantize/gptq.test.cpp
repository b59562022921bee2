#include "models/quantize/gptq.hpp"

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/require.hpp"

namespace troupe {
namespace {

constexpr double no_damping = 0.0;

/// Inputs in which neighbouring columns are alike.
std::vector<std::vector<float>> correlated_inputs(std::size_t rows, std::size_t columns) {
  std::mt19937 random(7);
  std::normal_distribution<float> noise;
  std::vector<std::vector<float>> inputs(rows, std::vector<float>(columns));
  for (auto& row : inputs) {
    float common = noise(random);
    for (std::size_t i = 0; i < columns; ++i) {
      common = 0.9F * common + 0.4F * noise(random);
      row[i] = common * (i % 7 == 0 ? 4.0F : 1.0F);
    }
  }
  return inputs;
}

InputStatistics statistics_of(const std::vector<std::vector<float>>& inputs, ThreadPool& threads) {
  std::vector<const float*> rows;
  for (const auto& row : inputs) rows.push_back(row.data());
  InputStatistics statistics(static_cast<std::int64_t>(inputs.front().size()));
  statistics.add(rows, threads);
  return statistics;
}

HostTensor random_matrix(std::int64_t rows, std::int64_t columns) {
  std::mt19937 random(3);
  std::normal_distribution<float> noise;
  HostTensor matrix(DType::f32, {rows, columns});
  for (float& weight : matrix->span<float>()) weight = noise(random);
  return matrix;
}

TEST(InputStatistics, are_the_sums_over_all_inputs) {
  ThreadPool threads(2);
  const auto inputs = correlated_inputs(300, 37);
  const InputStatistics statistics = statistics_of(inputs, threads);
  EXPECT_EQ(statistics.rows(), 300);
  for (std::int64_t i = 0; i < 37; ++i) {
    for (std::int64_t j = 0; j < 37; ++j) {
      double sum = 0;
      for (const auto& row : inputs) sum += double{row[i]} * double{row[j]};
      EXPECT_NEAR(statistics.product(i, j), sum, 1e-2);
    }
  }
  const HostTensor matrix = random_matrix(5, 37);
  double energy = 0;
  for (const auto& row : inputs) {
    for (std::int64_t n = 0; n < 5; ++n) {
      double out = 0;
      for (std::int64_t i = 0; i < 37; ++i) {
        out += double{row[i]} * double{matrix->as<float>()[n * 37 + i]};
      }
      energy += out * out;
    }
  }
  EXPECT_NEAR(statistics.output_energy(matrix, threads), energy, 1e-4 * energy);
}

TEST(Gptq, factors_the_inverse_of_the_products) {
  ThreadPool threads(2);
  constexpr std::int64_t k = 75;  // more than two blocks of the factorisation
  const InputStatistics inputs = statistics_of(correlated_inputs(400, k), threads);
  std::vector<std::int64_t> reversed(k);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  for (const bool is_reversed : {false, true}) {
    const std::vector<std::int64_t> order = is_reversed ? reversed : std::vector<std::int64_t>();
    REQUIRE_OK(const auto u, inverse_factor(inputs, no_damping, order, threads));
    const auto at = [&](std::int64_t i) { return is_reversed ? k - 1 - i : i; };
    // U^T U P is the identity.
    for (std::int64_t i = 0; i < k; ++i) {
      std::vector<double> row(k);
      for (std::int64_t m = 0; m < k; ++m) {
        for (std::int64_t l = 0; l <= std::min(i, m); ++l) {
          row[m] += double{u[l * k + i]} * double{u[l * k + m]};
        }
      }
      for (std::int64_t j = 0; j < k; ++j) {
        double sum = 0;
        for (std::int64_t m = 0; m < k; ++m) sum += row[m] * double{inputs.product(at(m), at(j))};
        EXPECT_NEAR(sum, i == j ? 1.0 : 0.0, 1e-3) << i << " " << j;
      }
      for (std::int64_t j = 0; j < i; ++j) EXPECT_EQ(u[i * k + j], 0.0F);
    }
  }
}

// One row of two columns, by hand. Inputs (1, 1) and (0, 1) have the products [[1, 1], [1, 2]],
// whose inverse is [[2, -1], [-1, 1]] = U^T U with U = [[sqrt 2, -1/sqrt 2], [0, 1/sqrt 2]].
TEST(Gptq, makes_up_for_an_error_as_computed_by_hand) {
  ThreadPool threads(1);
  const InputStatistics inputs = statistics_of({{1.0F, 1.0F}, {0.0F, 1.0F}}, threads);
  HostTensor matrix(DType::f32, {1, 2});
  matrix->as<float>()[0] = 7.5F;  // the scale is 1
  matrix->as<float>()[1] = 1.4F;
  const CodeGrid grid(QuantizationScheme::w4a16, DType::f32);
  REQUIRE_OK(const auto solver, GptqSolver::create(inputs, {.damping = no_damping}, threads));
  const QuantizedMatrix made = solver.solve(matrix, grid, 2, threads);
  EXPECT_EQ(made.scales[0], 1.0F);
  EXPECT_EQ(made.number(0, 0), 7.0F);
  // The error 0.5 over sqrt 2, times -1/sqrt 2, is -0.25: 1.4 becomes 1.65.
  EXPECT_EQ(made.number(0, 1), 2.0F);
  EXPECT_EQ(round_to_nearest(matrix, grid, 2, threads).number(0, 1), 1.0F);
}

TEST(Gptq, is_closer_than_rounding_over_several_blocks_with_and_without_order) {
  ThreadPool threads(2);
  constexpr std::int64_t k = 320;
  const InputStatistics inputs = statistics_of(correlated_inputs(1000, k), threads);
  const HostTensor matrix = random_matrix(33, k);
  const auto error = [&](const QuantizedMatrix& made) {
    HostTensor difference = made.numbers(threads);
    for (std::int64_t i = 0; i < difference->elements(); ++i) {
      difference->as<float>()[i] -= matrix->as<float>()[i];
    }
    return inputs.output_energy(difference, threads);
  };
  const CodeGrid grid(QuantizationScheme::w4a16, DType::f32);
  const double nearest = error(round_to_nearest(matrix, grid, 64, threads));
  for (const bool act_order : {false, true}) {
    REQUIRE_OK(const auto solver, GptqSolver::create(inputs, {.act_order = act_order}, threads));
    EXPECT_LT(error(solver.solve(matrix, grid, 64, threads)), 0.5 * nearest)
        << "act_order " << act_order;
  }
}

TEST(Gptq, rounds_columns_without_inputs_to_the_nearest) {
  ThreadPool threads(1);
  auto rows = correlated_inputs(100, 16);
  for (auto& row : rows) row[5] = 0.0F;
  const InputStatistics inputs = statistics_of(rows, threads);
  const HostTensor matrix = random_matrix(4, 16);
  const CodeGrid grid(QuantizationScheme::int8, DType::f32);
  REQUIRE_OK(const auto solver, GptqSolver::create(inputs, {}, threads));
  const QuantizedMatrix made = solver.solve(matrix, grid, 16, threads);
  const QuantizedMatrix nearest = round_to_nearest(matrix, grid, 16, threads);
  for (std::int64_t row = 0; row < 4; ++row) EXPECT_EQ(made.number(row, 5), nearest.number(row, 5));
}

TEST(Gptq, refuses_inputs_that_are_not_finite) {
  ThreadPool threads(1);
  const InputStatistics inputs = statistics_of({{1.0F, NAN}}, threads);
  EXPECT_FALSE(inverse_factor(inputs, 0.01, {}, threads).ok());
}

}  // namespace
}  // namespace troupe
