#include <algorithm>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// With deterministic operations a request's logits have the same bits in any batch,
// however its tokens are cut into passes and however many tensor ranks compute them, in bf16.

namespace troupe::golden {
namespace {

class DeterministicGpus : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (max_golden_ranks() < 1) GTEST_SKIP() << "there is no device";
    golden_ = golden_model(GetParam());
    if (!golden_) GTEST_SKIP() << missing_model_message(GetParam());
    REQUIRE_OK(prompts_, read_prompts(golden_->logits));
    ASSERT_FALSE(prompts_.empty());
    REQUIRE_OK(auto ops, make_golden_ops(DType::bf16, 0, true));
    REQUIRE_OK(loaded_, load(golden_->checkpoint, DType::bf16, {}, std::move(ops), true));
  }

  /// Logits of every row of every prompt, one prompt after another, each in passes of `chunk`.
  Result<std::vector<float>> all_logits(Runner& runner, std::int32_t chunk) const {
    std::vector<float> logits;
    for (const GoldenPrompt& prompt : prompts_) {
      Sequence sequence{prompt.ids};
      TROUPE_CHECK(runner.feed(sequence, chunk, logits));
      runner.release(sequence);
    }
    return logits;
  }

  void expect_bits_on(const MeshRanks& way, const std::string& what) {
    if (way.shape.world_size() > max_golden_ranks()) {
      GTEST_SKIP() << what << " wants " << way.shape.world_size() << " devices, there are "
                   << max_golden_ranks();
    }
    if (loaded_.runner->config().heads % way.shape.tensor != 0) {
      GTEST_SKIP() << what << ": the model has " << loaded_.runner->config().heads << " heads";
    }
    REQUIRE_OK(const auto expected, all_logits(*loaded_.runner, whole));
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_->checkpoint, DType::bf16, way,
                         [&](Runner& runner, int) { return all_logits(runner, whole); }));
    const std::size_t first = ranks.size() - ranks.size() / way.shape.pipeline;
    for (std::size_t rank = first; rank < ranks.size(); ++rank) {
      expect_same_bits(ranks[rank], expected, what + ", rank " + std::to_string(rank));
    }
  }

  /// Whole experts on each of the tensor ranks, if there are any.
  MeshRanks over_tensor_ranks(int ranks) const {
    const int experts = loaded_.runner->config().moe ? ranks : 1;
    return {.shape = {.tensor = ranks}, .expert_parallel_size = experts, .deterministic = true};
  }

  std::optional<GoldenModel> golden_;
  std::vector<GoldenPrompt> prompts_;
  LoadedModel loaded_;
};

TEST_P(DeterministicGpus, chunked_prefill_gives_the_bits_of_whole_prefill) {
  REQUIRE_OK(const auto expected, all_logits(*loaded_.runner, whole));
  for (const std::int32_t chunk : {1, 7, 16, 100}) {
    REQUIRE_OK(const auto found, all_logits(*loaded_.runner, chunk));
    expect_same_bits(found, expected, "passes of " + std::to_string(chunk) + " tokens");
  }
}

TEST_P(DeterministicGpus, company_in_a_batch_changes_no_bit) {
  Runner& runner = *loaded_.runner;
  const auto vocab = static_cast<std::size_t>(runner.config().vocab_size);
  const GoldenPrompt& watched = *std::ranges::max_element(
      prompts_, {}, [](const GoldenPrompt& prompt) { return prompt.ids.size(); });
  Sequence alone{watched.ids};
  std::vector<float> expected;
  const auto fed = runner.feed(alone, whole, expected);
  ASSERT_TRUE(fed.ok()) << fed.error().message;
  runner.release(alone);

  // In pieces of changing size, after others that come and go.
  Sequence sequence{watched.ids};
  std::vector<float> found;
  for (std::size_t pass = 0; found.size() < expected.size(); ++pass) {
    const auto left = static_cast<std::int32_t>(watched.ids.size()) - sequence.computed;
    const std::int32_t rows = std::min<std::int32_t>(left, 1 + static_cast<int>(pass * 5 % 23));
    std::vector<Sequence> others;
    for (std::size_t i = 0; i < pass % 6; ++i) {
      others.push_back({prompts_[(pass + i) % prompts_.size()].ids});
    }
    std::vector<Share> shares;
    for (Sequence& other : others) {
      const auto other_rows = std::min<std::int32_t>(static_cast<int>(other.tokens.size()), 80);
      shares.push_back({&other, other_rows, 1});
    }
    const std::size_t rows_before = shares.size();
    shares.push_back({&sequence, rows, rows});
    REQUIRE_OK(const Tensor logits, runner.pass(shares));
    const auto own = logits.span<float>().subspan(rows_before * vocab);
    found.insert(found.end(), own.begin(), own.end());
    for (Sequence& other : others) runner.release(other);
  }
  expect_same_bits(found, expected, "the longest prompt in company");
}

TEST_P(DeterministicGpus, two_tensor_ranks_give_the_bits_of_one) {
  expect_bits_on(over_tensor_ranks(2), "tensor 2");
}

TEST_P(DeterministicGpus, two_context_ranks_give_the_bits_of_one) {
  expect_bits_on({.shape = {.context = 2}, .deterministic = true}, "context 2");
}

TEST_P(DeterministicGpus, two_tensor_ranks_that_divide_rows_give_the_bits_of_one) {
  MeshRanks way = over_tensor_ranks(2);
  way.sequence_parallel = true;
  expect_bits_on(way, "tensor 2, sequence parallel");
}

TEST_P(DeterministicGpus, four_tensor_ranks_give_the_bits_of_one) {
  expect_bits_on(over_tensor_ranks(4), "tensor 4");
}

TEST_P(DeterministicGpus, two_replicas_that_share_dense_layers_give_the_bits_of_one) {
  for (const int experts : {1, 2}) {
    if (experts > 1 && !loaded_.runner->config().moe) continue;
    expect_bits_on({.shape = {.data = 2},
                    .expert_parallel_size = experts,
                    .data_parallel_attention = true,
                    .deterministic = true},
                   "data 2, experts over " + std::to_string(experts));
  }
}

TEST_P(DeterministicGpus,
       replicas_of_two_tensor_ranks_that_share_dense_layers_give_the_bits_of_one) {
  expect_bits_on({.shape = {.data = 2, .tensor = 2},
                  .expert_parallel_size = loaded_.runner->config().moe ? 4 : 1,
                  .data_parallel_attention = true,
                  .deterministic = true},
                 "data 2, tensor 2");
}

TEST_P(DeterministicGpus, two_stages_give_the_bits_of_one) {
  expect_bits_on({.shape = {.pipeline = 2}, .deterministic = true}, "pipeline 2");
}

INSTANTIATE_TEST_SUITE_P(Golden, DeterministicGpus,
                         testing::Values("fable-moe", "fable-draft", "qwen3moe-a", "llama-a",
                                         "mistral-a", "qwen2-a", "deepseek3-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::golden
