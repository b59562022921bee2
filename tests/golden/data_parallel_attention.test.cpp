#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// Replicas that attend to their own sequences and share the other dense matrices give the bits of
// one rank, whatever rows the others have.

namespace troupe::golden {
namespace {

struct Arrangement {
  std::string name;
  MeshShape shape;
  int expert_parallel_size = 1;
};

void PrintTo(const Arrangement& arrangement, std::ostream* out) { *out << arrangement.name; }

const Arrangement dense_layers[] = {
    {"data2", {.data = 2}},
    {"data4", {.data = 4}},
    {"data2_tensor2", {.data = 2, .tensor = 2}},
    {"data2_pipeline2", {.data = 2, .pipeline = 2}},
};
const Arrangement experts_over_ranks[] = {
    {"data2_ep2", {.data = 2}, 2},
    {"data4_ep4", {.data = 4}, 4},
    {"data4_ep2_in_two_domains", {.data = 4}, 2},
    {"data2_tensor2_ep4", {.data = 2, .tensor = 2}, 4},
    {"data2_tensor2_ep2_in_each_replica", {.data = 2, .tensor = 2}, 2},
    {"data2_pipeline2_ep2", {.data = 2, .pipeline = 2}, 2},
};

using Parameters = std::tuple<std::string, Arrangement>;

class DataParallelAttention : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    const auto& [model, arrangement] = GetParam();
    golden_ = golden_model(model);
    ASSERT_TRUE(golden_);
    REQUIRE_OK(prompts_, read_prompts(golden_->logits));
    ASSERT_GT(prompts_.size(), 1U);
    REQUIRE_OK(mesh_, Mesh::create(arrangement.shape, arrangement.expert_parallel_size, true));
    ranks_ = {.shape = arrangement.shape,
              .expert_parallel_size = arrangement.expert_parallel_size,
              .data_parallel_attention = true};
  }

  /// What one replica does; the same number of passes in each.
  using Passes = std::function<Result<std::vector<float>>(Runner& runner, int replica)>;

  /// Compares the logits of each replica with those of one rank that does the same.
  void expect_the_bits_of_one_rank(const Passes& passes) const {
    REQUIRE_OK(const auto found,
               run_ranks(golden_->checkpoint, DType::f32, ranks_, [&](Runner& runner, int rank) {
                 return passes(runner, mesh_.coordinates(rank).data);
               }));
    std::vector<std::vector<float>> alone;
    for (int replica = 0; replica < mesh_.shape().data; ++replica) {
      REQUIRE_OK(const LoadedModel loaded, load(golden_->checkpoint, DType::f32));
      REQUIRE_OK(auto logits, passes(*loaded.runner, replica));
      alone.push_back(std::move(logits));
    }
    for (int rank = 0; rank < mesh_.world_size(); ++rank) {
      const MeshCoordinates at = mesh_.coordinates(rank);
      if (at.stage + 1 != mesh_.shape().pipeline) continue;
      expect_same_bits(found[static_cast<std::size_t>(rank)],
                       alone[static_cast<std::size_t>(at.data)], mesh_.describe(rank));
    }
  }

  /// Prompt `index` of a replica, each of which begins with another one; at most `most` tokens.
  std::vector<std::int32_t> prompt(std::size_t index, int replica, std::ptrdiff_t most) const {
    const std::size_t at = (index + static_cast<std::size_t>(replica)) % prompts_.size();
    const auto& ids = prompts_[at].ids;
    return {ids.begin(), ids.begin() + std::min(most, std::ssize(ids))};
  }

  /// `count` tokens of the longest prompt, of each replica and index others.
  std::vector<std::int32_t> excerpt(std::size_t index, int replica, std::int32_t count) const {
    const auto& ids = std::ranges::max_element(prompts_, {}, [](const GoldenPrompt& prompt) {
                        return prompt.ids.size();
                      })->ids;
    std::vector<std::int32_t> tokens;
    for (std::size_t at = 7 * (index + 3 * static_cast<std::size_t>(replica));
         std::ssize(tokens) < count; ++at) {
      tokens.push_back(ids[at % ids.size()]);
    }
    return tokens;
  }

  static void append(const Tensor& found, std::vector<float>& logits) {
    const std::span<const float> values = found.span<float>();
    logits.insert(logits.end(), values.begin(), values.end());
  }

  std::optional<GoldenModel> golden_;
  std::vector<GoldenPrompt> prompts_;
  Mesh mesh_;
  MeshRanks ranks_;
};

TEST_P(DataParallelAttention, replicas_with_other_tokens_get_the_bits_of_one_rank) {
  expect_the_bits_of_one_rank([&](Runner& runner, int replica) -> Result<std::vector<float>> {
    std::vector<float> logits;
    for (const std::int32_t chunk : {1, 7, 512}) {
      for (std::size_t i = 0; i < prompts_.size(); ++i) {
        constexpr std::int32_t max_passes = 6;
        Sequence sequence{prompt(i, replica, max_passes * chunk)};
        TROUPE_CHECK(runner.feed(sequence, chunk, logits));
        runner.release(sequence);
      }
    }
    return logits;
  });
}

TEST_P(DataParallelAttention, a_replica_without_tokens_serves_the_others) {
  expect_the_bits_of_one_rank([&](Runner& runner, int replica) -> Result<std::vector<float>> {
    std::vector<float> logits;
    for (std::size_t i = 0; i < 4; ++i) {
      // One replica after the other has none, and the first has all rows' logits.
      if (static_cast<int>(i % 2) == replica % 2) {
        if (runner.shares_dense_layers()) TROUPE_CHECK(runner.empty_pass());
        continue;
      }
      Sequence sequence{prompt(i, replica, 11 + replica)};
      const auto rows = static_cast<std::int32_t>(sequence.tokens.size());
      const Share share{&sequence, rows, replica == 0 ? rows : 1};
      TROUPE_TRY(const Tensor found, runner.pass({&share, 1}));
      append(found, logits);
      runner.release(sequence);
    }
    return logits;
  });
}

TEST_P(DataParallelAttention, rows_that_need_no_logits_may_leave_out_the_last_layer) {
  expect_the_bits_of_one_rank([&](Runner& runner, int replica) -> Result<std::vector<float>> {
    std::vector<float> logits;
    for (std::size_t i = 0; i < 4; ++i) {
      Sequence sequence{excerpt(i, replica, 40 + 10 * replica)};
      const auto all = static_cast<std::int32_t>(sequence.tokens.size());
      // No logits, those of one row and those of many; of each at the same time as another replica.
      const std::int32_t ends[] = {all - 12, all - 3, all - 1, all};
      const std::int32_t wanted[] = {(static_cast<std::int32_t>(i) + replica) % 3 == 0 ? 0 : 1,
                                     replica % 2 == 0 ? 9 : 0, 1, replica % 2};
      for (std::size_t pass = 0; pass < std::size(ends); ++pass) {
        const std::int32_t rows = ends[pass] - sequence.computed;
        const Share share{&sequence, rows, wanted[pass]};
        TROUPE_TRY(const Tensor found, runner.pass({&share, 1}));
        append(found, logits);
      }
      runner.release(sequence);
    }
    return logits;
  });
}

TEST_P(DataParallelAttention, replicas_may_have_more_rows_together_than_a_pass_takes) {
  expect_the_bits_of_one_rank([&](Runner& runner, int replica) -> Result<std::vector<float>> {
    constexpr std::int32_t most = 512;
    std::vector<Sequence> sequences;
    std::vector<std::int32_t> rows;
    std::int32_t left = most - 13 * replica;
    for (std::size_t i = 0; left > 0; ++i) {
      sequences.push_back({prompt(i, replica, left)});
      rows.push_back(static_cast<std::int32_t>(sequences.back().tokens.size()));
      left -= rows.back();
    }
    std::vector<Share> shares;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      shares.push_back({&sequences[i], rows[i], rows[i] - replica % 2});
    }
    std::vector<float> logits;
    TROUPE_TRY(const Tensor found, runner.pass(shares));
    append(found, logits);
    return logits;
  });
}

std::string test_name(const testing::TestParamInfo<Parameters>& info) {
  const auto& [model, arrangement] = info.param;
  return name_in_test(model) + "_" + arrangement.name;
}

// Dense models and models with experts: latents, shared experts, gated or not, windows, tied
// embeddings, layers whose MLP reads what attention does, biases and norms after blocks.
INSTANTIATE_TEST_SUITE_P(Golden, DataParallelAttention,
                         testing::Combine(testing::Values("llama-a", "gemma3-a", "cohere-a",
                                                          "starcoder2-a", "deepseek3-a"),
                                          testing::ValuesIn(dense_layers)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(GoldenExperts, DataParallelAttention,
                         testing::Combine(testing::Values("qwen3moe-a", "deepseek2-a",
                                                          "deepseek3-a", "deepseek32-a",
                                                          "qwen2moe-a"),
                                          testing::ValuesIn(experts_over_ranks)),
                         test_name);

}  // namespace
}  // namespace troupe::golden
