#include <atomic>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "tests/golden/support/forwarding_collectives.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/golden/support/require.hpp"

namespace troupe::golden {
namespace {

/// Cuts all passes but the shortest into parts, as if they were long.
class CuttingCollectives final : public ForwardingCollectives {
 public:
  CuttingCollectives(std::unique_ptr<Collectives> inner, std::atomic<int>& opened)
      : ForwardingCollectives(std::move(inner)), opened_(opened) {}

  bool can_sum_and_norm(DType dtype, std::int64_t width) const override {
    return inner().can_sum_and_norm(dtype, width);
  }
  bool divides_sums(std::size_t) const override { return true; }
  Result<void> sum_and_norm(const SumAndNorm& sum) override { return inner().sum_and_norm(sum); }
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override {
    return inner().columns_to_rows(part, whole, scratch);
  }
  Result<std::unique_ptr<SideSums>> open_side_sums(DType dtype, std::int64_t most_rows,
                                                   std::int64_t width) override {
    TROUPE_TRY(auto side, inner().open_side_sums(dtype, most_rows, width));
    if (side == nullptr) return side;
    side->set_least_rows(16);
    ++opened_;
    return side;
  }

 private:
  std::atomic<int>& opened_;
};

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

TEST(RanksOnGpus, have_the_perplexity_of_one_where_passes_are_cut_into_parts) {
  if (most_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto windows, read_windows());
  const auto checkpoint = golden_model("fable-draft")->checkpoint;
  const auto body = [&](Runner& runner, int) -> Result<std::vector<float>> {
    TROUPE_TRY(const double nll, window_nll(runner, windows.at(5)));
    return std::vector<float>{static_cast<float>(nll)};
  };
  REQUIRE_OK(const auto expected, run_ranks(checkpoint, DType::bf16, {}, body));
  std::atomic<int> opened = 0;
  const MeshRanks way{.shape = {.tensor = 2},
                      .wrap_device = [&](std::unique_ptr<Collectives> inner) {
                        return std::make_unique<CuttingCollectives>(std::move(inner), opened);
                      }};
  REQUIRE_OK(const auto found, run_ranks(checkpoint, DType::bf16, way, body));
  EXPECT_EQ(opened, 2);
  EXPECT_NEAR(found.back()[0], expected.front()[0], 0.02);
}

}  // namespace
}  // namespace troupe::golden
