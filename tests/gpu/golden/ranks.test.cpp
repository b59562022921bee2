#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/collectives/forwarding_collectives.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

/// Divides all passes as if they were long, and cuts them into parts on request.
class CuttingCollectives final : public ForwardingCollectives {
 public:
  explicit CuttingCollectives(std::unique_ptr<Collectives> inner)
      : ForwardingCollectives(std::move(inner)) {}

  /// Called by all ranks: cuts all passes but the shortest from now on.
  Result<void> cut() {
    if (side_ == nullptr) return fail(ErrorCode::internal, "there are no sums beside products");
    TROUPE_CHECK(barrier());
    side_->set_least_rows(16);
    return {};
  }

  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override {
    return inner().can_all_reduce_rms_norm(dtype, width);
  }
  bool prefers_sharded_residual(std::size_t) const override { return true; }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& sum) override {
    return inner().all_reduce_rms_norm(sum);
  }
  Result<void> columns_to_rows(const Tensor& part, const Tensor& whole,
                               const Tensor& scratch) override {
    return inner().columns_to_rows(part, whole, scratch);
  }
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) override {
    TROUPE_TRY(auto side, inner().open_overlapped_all_reduce(dtype, max_rows, width));
    side_ = side.get();
    return side;
  }

 private:
  OverlappedAllReduce* side_ = nullptr;  ///< the model's
};

/// Runs uncut passes of a whole window and of as many tokens as its parts have.
Result<void> take_whole_passes(Runner& runner, const std::vector<std::int32_t>& window) {
  const auto tokens = static_cast<std::int64_t>(window.size());
  const std::int64_t sizes[] = {
      tokens, OverlappedAllReduce::part_of(tokens, 0, 2).count,
      OverlappedAllReduce::part_of(tokens, OverlappedAllReduce::parts - 1, 2).count};
  for (const std::int64_t size : sizes) {
    Sequence sequence{window};
    std::vector<float> unused;
    TROUPE_CHECK(runner.feed(sequence, static_cast<std::int32_t>(size), unused));
    runner.release(sequence);
  }
  return {};
}

// bf16, with bf16 partial sums between ranks: the perplexity of text distinguishes wrong sums from
// rounded ones.
TEST(RanksOnGpus, have_the_perplexity_of_transformers_in_bf16) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto windows, read_windows());
  REQUIRE_OK(const auto golden, read_perplexity("fable-moe"));
  const std::pair<const char*, MeshRanks> ways[] = {
      {"tensor 2", {.shape = {.tensor = 2}}},
      {"tensor 2, sequence parallel", {.shape = {.tensor = 2}, .sequence_parallel = true}},
      {"pipeline 2", {.shape = {.pipeline = 2}}},
      {"context 2", {.shape = {.context = 2}}},
      {"context 2, tensor 2", {.shape = {.context = 2, .tensor = 2}}},
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
    if (way.shape.world_size() > max_golden_ranks()) continue;
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
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  REQUIRE_OK(const auto windows, read_windows());
  const auto& window = windows.at(5);
  const auto checkpoint = golden_model("fable-draft")->checkpoint;
  const auto nll_of = [&](Runner& runner, int) -> Result<std::vector<float>> {
    TROUPE_TRY(const double nll, window_nll(runner, window));
    return std::vector<float>{static_cast<float>(nll)};
  };
  REQUIRE_OK(const auto expected, run_ranks(checkpoint, DType::bf16, {}, nll_of));
  std::array<CuttingCollectives*, 2> groups{};
  const auto nll_in_parts = [&](Runner& runner, int rank) -> Result<std::vector<float>> {
    // A driver that loads a kernel may wait for all devices of the process, and so keep the other
    // rank from enqueuing what this rank's streams wait for: so load all kernels first.
    TROUPE_CHECK(take_whole_passes(runner, window));
    TROUPE_CHECK(groups.at(static_cast<std::size_t>(rank))->cut());
    return nll_of(runner, rank);
  };
  const MeshRanks way{.shape = {.tensor = 2},
                      .wrap_device = [&](std::unique_ptr<Collectives> inner) {
                        auto made = std::make_unique<CuttingCollectives>(std::move(inner));
                        groups.at(static_cast<std::size_t>(made->rank())) = made.get();
                        return made;
                      }};
  REQUIRE_OK(const auto found, run_ranks(checkpoint, DType::bf16, way, nll_in_parts));
  EXPECT_NEAR(found.back()[0], expected.front()[0], 0.02);
}

}  // namespace
}  // namespace troupe::golden
