#include <algorithm>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// Experts that are distributed, split and replicated over ranks give the bits of experts on one
// rank.

namespace troupe::golden {
namespace {

constexpr std::int32_t chunks[] = {1, 7, whole};

struct Arrangement {
  std::string name;
  MeshShape shape;
  int expert_parallel_size = 1;
};

void PrintTo(const Arrangement& arrangement, std::ostream* out) { *out << arrangement.name; }

const Arrangement within_a_replica[] = {
    {"tensor2_ep2", {.tensor = 2}, 2},
    {"tensor4_ep2_splits_experts", {.tensor = 4}, 2},
    {"tensor4_ep4", {.tensor = 4}, 4},
    {"pipeline2_tensor2_ep2", {.pipeline = 2, .tensor = 2}, 2},
    {"data2_tensor2_ep2_copies_experts", {.data = 2, .tensor = 2}, 2},
};
const Arrangement across_replicas[] = {
    {"data2_ep2", {.data = 2}, 2},
    {"data2_tensor2_ep4", {.data = 2, .tensor = 2}, 4},
    {"data2_pipeline2_ep2", {.data = 2, .pipeline = 2}, 2},
};

using Parameters = std::tuple<std::string, Arrangement, bool>;

class ExpertParallel : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    const auto& [model, arrangement, sequence_parallel] = GetParam();
    golden_ = golden_model(model);
    ASSERT_TRUE(golden_);
    REQUIRE_OK(prompts_, read_prompts(golden_->logits));
    ASSERT_GT(prompts_.size(), 1U);
    REQUIRE_OK(mesh_, Mesh::create(arrangement.shape, arrangement.expert_parallel_size));
    ranks_ = {.shape = arrangement.shape,
              .expert_parallel_size = arrangement.expert_parallel_size,
              .sequence_parallel = sequence_parallel};
  }

  /// The results of one rank: logits of every row of every prompt, one prompt after another, in
  /// passes of each number of tokens.
  Result<std::vector<float>> expected(bool reversed = false) const {
    TROUPE_TRY(const LoadedModel loaded, load(golden_->checkpoint, DType::f32));
    return all_logits(*loaded.runner, reversed);
  }

  Result<std::vector<float>> all_logits(Runner& runner, bool reversed = false) const {
    std::vector<float> logits;
    for (const std::int32_t chunk : chunks) {
      for (std::size_t i = 0; i < prompts_.size(); ++i) {
        Sequence sequence{tokens_of(prompts_[reversed ? prompts_.size() - 1 - i : i], chunk)};
        TROUPE_CHECK(runner.feed(sequence, chunk, logits));
        runner.release(sequence);
      }
    }
    return logits;
  }

  /// The tokens of a prompt; of a long one as many as fit a few passes.
  static std::vector<std::int32_t> tokens_of(const GoldenPrompt& prompt, std::int32_t chunk) {
    constexpr std::int32_t max_passes = 16;
    const auto tokens = std::min<std::ptrdiff_t>(std::ssize(prompt.ids), max_passes * chunk);
    return {prompt.ids.begin(), prompt.ids.begin() + tokens};
  }

  /// Runs as many empty passes as all_logits runs passes.
  Result<std::vector<float>> empty_passes(Runner& runner) const {
    for (const std::int32_t chunk : chunks) {
      for (const GoldenPrompt& prompt : prompts_) {
        const auto tokens = static_cast<std::int32_t>(tokens_of(prompt, chunk).size());
        for (std::int32_t at = 0; at < tokens; at += chunk) TROUPE_CHECK(runner.empty_pass());
      }
    }
    return std::vector<float>();
  }

  int replica(std::size_t rank) const { return mesh_.coordinates(static_cast<int>(rank)).data; }
  bool has_logits(std::size_t rank) const {
    return mesh_.coordinates(static_cast<int>(rank)).stage + 1 == mesh_.shape().pipeline;
  }

  std::optional<GoldenModel> golden_;
  std::vector<GoldenPrompt> prompts_;
  Mesh mesh_;
  MeshRanks ranks_;
};

class ExpertsAcrossReplicas : public ExpertParallel {};

TEST_P(ExpertParallel, gives_the_bits_of_one_rank) {
  REQUIRE_OK(const auto alone, expected());
  REQUIRE_OK(const auto found, run_ranks(golden_->checkpoint, DType::f32, ranks_,
                                         [&](Runner& runner, int) { return all_logits(runner); }));
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    if (has_logits(rank))
      expect_same_bits(found[rank], alone, mesh_.describe(static_cast<int>(rank)));
  }
}

// Replicas that share experts run as many passes, but with other tokens in each: the second one
// takes the prompts in reverse, so that each has more tokens at times.
TEST_P(ExpertsAcrossReplicas, replicas_with_other_tokens_change_no_bit) {
  REQUIRE_OK(const auto alone, expected());
  REQUIRE_OK(const auto alone_reversed, expected(true));
  REQUIRE_OK(const auto found,
             run_ranks(golden_->checkpoint, DType::f32, ranks_, [&](Runner& runner, int rank) {
               return all_logits(runner, replica(rank) == 1);
             }));
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    if (!has_logits(rank)) continue;
    expect_same_bits(found[rank], replica(rank) == 1 ? alone_reversed : alone,
                     mesh_.describe(static_cast<int>(rank)));
  }
}

TEST_P(ExpertsAcrossReplicas, a_replica_without_tokens_serves_the_other) {
  REQUIRE_OK(const auto alone, expected());
  for (const int empty : {0, 1}) {
    REQUIRE_OK(const auto found,
               run_ranks(golden_->checkpoint, DType::f32, ranks_, [&](Runner& runner, int rank) {
                 return replica(rank) == empty ? empty_passes(runner) : all_logits(runner);
               }));
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      if (replica(rank) == empty || !has_logits(rank)) continue;

      expect_same_bits(found[rank], alone, mesh_.describe(static_cast<int>(rank)));
    }
  }
}

std::string test_name(const testing::TestParamInfo<Parameters>& info) {
  const auto& [model, arrangement, sequence_parallel] = info.param;
  std::string name = model + "_" + arrangement.name;
  if (sequence_parallel) name += "_sequence_parallel";
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, ExpertParallel,
                         testing::Combine(testing::Values("fable-moe", "qwen3moe-a", "mixtral-a",
                                                          "deepseek3-a", "gptoss-a", "qwen2moe-a"),
                                          testing::ValuesIn(within_a_replica), testing::Bool()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Golden, ExpertsAcrossReplicas,
                         testing::Combine(testing::Values("fable-moe", "qwen3moe-a", "mixtral-a",
                                                          "deepseek3-a", "gptoss-a", "qwen2moe-a"),
                                          testing::ValuesIn(across_replicas), testing::Bool()),
                         test_name);

}  // namespace
}  // namespace troupe::golden
