#include <cmath>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/golden/support/require.hpp"

namespace troupe::golden {
namespace {

// bf16, whose partial sums are bf16 between ranks: the perplexity of text tells wrong sums from
// rounded ones.
TEST(RanksOnGpus, have_the_perplexity_of_transformers_in_bf16) {
  if (most_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto windows, read_windows());
  REQUIRE_OK(const auto golden, read_perplexity("fable-moe"));
  const std::pair<const char*, MeshRanks> ways[] = {
      {"tensor 2", {.shape = {.tensor = 2}}},
      {"tensor 2, sequence parallel", {.shape = {.tensor = 2}, .sequence_parallel = true}},
      {"pipeline 2", {.shape = {.pipeline = 2}}},
      {"tensor 2, experts over 2", {.shape = {.tensor = 2}, .expert_parallel_size = 2}},
      {"data 2, experts over 2", {.shape = {.data = 2}, .expert_parallel_size = 2}},
      {"tensor 4", {.shape = {.tensor = 4}}},
      {"pipeline 2, tensor 2", {.shape = {.pipeline = 2, .tensor = 2}}},
      {"tensor 4, experts over 2", {.shape = {.tensor = 4}, .expert_parallel_size = 2}},
      {"tensor 4, experts over 4", {.shape = {.tensor = 4}, .expert_parallel_size = 4}},
      {"data 2, tensor 2, experts over 4",
       {.shape = {.data = 2, .tensor = 2}, .expert_parallel_size = 4}},
  };
  for (const auto& [name, way] : ways) {
    if (way.shape.world_size() > most_golden_ranks()) continue;
    SCOPED_TRACE(name);
    const std::size_t chosen[] = {0, 5, 78};
    const auto body = [&](Runner& runner, int) -> Result<std::vector<float>> {
      std::vector<float> found;
      for (const std::size_t window : chosen) {
        TROUPE_TRY(const double nll, window_nll(runner, windows.at(window)));
        found.push_back(static_cast<float>(nll));
      }
      return found;
    };
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_model("fable-moe")->checkpoint, DType::bf16, way, body));
    for (std::size_t i = 0; i < std::size(chosen); ++i) {
      EXPECT_NEAR(ranks.back()[i], golden.window_nll.at(chosen[i]), 0.02)
          << name << ", window " << chosen[i];
      std::cout << name << ", window " << chosen[i] << ": " << ranks.back()[i] << " for "
                << golden.window_nll.at(chosen[i]) << '\n';
    }
  }
}

}  // namespace
}  // namespace troupe::golden
