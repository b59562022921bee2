#include <algorithm>

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// A request's logits have the same bits in any batch, however its tokens are split into
// passes and however many tensor ranks compute them.

namespace troupe::golden {
namespace {

class Exactness : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = golden_model(GetParam());
    if (!golden_) GTEST_SKIP() << missing_model_message(GetParam());
    REQUIRE_OK(prompts_, read_prompts(golden_->logits));
    ASSERT_FALSE(prompts_.empty());
  }

  const GoldenPrompt& longest() const {
    return *std::ranges::max_element(prompts_, {},
                                     [](const GoldenPrompt& prompt) { return prompt.ids.size(); });
  }

  /// True if rows choose their keys: then context ranks are refused.
  bool is_sparse() const { return golden_->name == "deepseek32-a"; }

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

  std::optional<GoldenModel> golden_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_P(Exactness, chunked_prefill_gives_the_bits_of_whole_prefill) {
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*loaded.runner, whole));
  for (const std::int32_t chunk : {1, 7, 16}) {
    REQUIRE_OK(const auto found, all_logits(*loaded.runner, chunk));
    expect_same_bits(found, expected, "passes of " + std::to_string(chunk) + " tokens");
  }
}

TEST_P(Exactness, company_in_a_batch_changes_no_bit) {
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  Runner& runner = *loaded.runner;
  const auto vocab = static_cast<std::size_t>(runner.config().vocab_size);
  const GoldenPrompt& watched = longest();
  Sequence alone{watched.ids};
  std::vector<float> expected;
  const auto fed = runner.feed(alone, whole, expected);
  ASSERT_TRUE(fed.ok()) << fed.error().message;
  runner.release(alone);

  // The watched prompt is fed in pieces of changing size, after others that come and go.
  Sequence sequence{watched.ids};
  std::vector<Sequence> others;
  std::vector<float> found;
  for (std::size_t pass = 0; found.size() < expected.size(); ++pass) {
    const auto left = static_cast<std::int32_t>(watched.ids.size()) - sequence.computed;
    const std::int32_t rows = std::min<std::int32_t>(left, 1 + static_cast<int>(pass * 5 % 23));
    others.clear();
    for (std::size_t i = 0; i < pass % 4; ++i) {
      others.push_back({prompts_[(pass + i) % prompts_.size()].ids});
    }
    std::vector<Share> shares;
    std::int32_t rows_before = 0;
    for (Sequence& other : others) {
      const auto other_rows = std::min<std::int32_t>(static_cast<int>(other.tokens.size()), 40);
      shares.push_back({&other, other_rows, 1});
      ++rows_before;
    }
    shares.push_back({&sequence, rows, rows});
    REQUIRE_OK(const Tensor logits, runner.pass(shares));
    const auto own = logits.span<float>().subspan(static_cast<std::size_t>(rows_before) * vocab);
    found.insert(found.end(), own.begin(), own.end());
    for (Sequence& other : others) runner.release(other);
  }
  expect_same_bits(found, expected, "the longest prompt in company");
}

TEST_P(Exactness, rows_without_logits_that_the_last_layer_leaves_out_change_no_bit) {
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  // Two prompts at once, of which some rows at the end want logits: all, or few enough that the
  // last layer computes no others.
  const auto last_logits = [&](Runner& runner, std::int32_t rows) -> Result<std::vector<float>> {
    const auto vocab = static_cast<std::size_t>(runner.config().vocab_size);
    Sequence one{longest().ids}, two{prompts_.front().ids};
    const auto half = static_cast<std::int32_t>(one.tokens.size() / 2);
    const Share first[] = {{&one, half, 0}};
    TROUPE_TRY([[maybe_unused]] const Tensor none, runner.pass(first));
    const auto rest = static_cast<std::int32_t>(one.tokens.size()) - half;
    const auto all = static_cast<std::int32_t>(two.tokens.size());
    const Share both[] = {{&one, rest, rows < 0 ? rest : rows}, {&two, all, rows < 0 ? all : rows}};
    TROUPE_TRY(const Tensor logits, runner.pass(both));
    const auto found = logits.span<float>();
    const auto end_of_one = static_cast<std::size_t>(both[0].logit_rows) * vocab;
    std::vector<float> last(found.begin() + static_cast<std::ptrdiff_t>(end_of_one - vocab),
                            found.begin() + static_cast<std::ptrdiff_t>(end_of_one));
    last.insert(last.end(), found.end() - static_cast<std::ptrdiff_t>(vocab), found.end());
    runner.release(one);
    runner.release(two);
    return last;
  };
  REQUIRE_OK(const auto expected, last_logits(*loaded.runner, -1));
  for (const std::int32_t rows : {1, 2}) {
    REQUIRE_OK(const auto found, last_logits(*loaded.runner, rows));
    expect_same_bits(found, expected, std::to_string(rows) + " rows of each prompt");
  }
  const std::pair<const char*, MeshRanks> ways[] = {
      {"tensor 2", {.shape = {.tensor = 2}}},
      {"tensor 2, sequence parallel", {.shape = {.tensor = 2}, .sequence_parallel = true}},
      {"context 2", {.shape = {.context = 2}}},
      {"pipeline 2", {.shape = {.pipeline = 2}}},
  };
  for (const auto& [name, way] : ways) {
    if (way.shape.context > 1 && is_sparse()) continue;
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_->checkpoint, DType::f32, way,
                         [&](Runner& runner, int) { return last_logits(runner, 1); }));
    expect_same_bits(ranks.back(), expected, name);
  }
}

TEST_P(Exactness, two_tensor_ranks_give_the_bits_of_one) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    REQUIRE_OK(const auto loaded, load(golden_->checkpoint, precision));
    REQUIRE_OK(const auto expected, all_logits(*loaded.runner, whole));
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_->checkpoint, precision, {.shape = {.tensor = 2}},
                         [&](Runner& runner, int) { return all_logits(runner, whole); }));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      expect_same_bits(ranks[rank], expected, "tensor rank " + std::to_string(rank));
    }
  }
}

TEST_P(Exactness, sequence_parallel_ranks_give_the_bits_of_one) {
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*loaded.runner, whole));
  // Passes of one token leave all ranks but the first without rows, odd ones make them uneven.
  for (const std::int32_t chunk : {1, 7, whole}) {
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_->checkpoint, DType::f32,
                         {.shape = {.tensor = 2}, .sequence_parallel = true},
                         [&](Runner& runner, int) { return all_logits(runner, chunk); }));
    for (const auto& found : ranks) {
      expect_same_bits(found, expected, "sequence parallel, passes of " + std::to_string(chunk));
    }
  }
}

TEST_P(Exactness, pipeline_stages_give_the_bits_of_one) {
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*loaded.runner, whole));
  const MeshRanks ways[] = {{.shape = {.pipeline = 2}},
                            {.shape = {.pipeline = 2, .tensor = 2}, .sequence_parallel = true}};
  for (const MeshRanks& way : ways) {
    for (const std::int32_t chunk : {1, whole}) {
      REQUIRE_OK(const auto ranks,
                 run_ranks(golden_->checkpoint, DType::f32, way,
                           [&](Runner& runner, int) { return all_logits(runner, chunk); }));
      for (int tensor = 0; tensor < way.shape.tensor; ++tensor) {
        const auto last_stage = ranks.size() - 1 - static_cast<std::size_t>(tensor);
        expect_same_bits(ranks[last_stage], expected, "two stages");
      }
    }
  }
}

TEST_P(Exactness, context_parallel_ranks_give_the_bits_of_one) {
  if (is_sparse()) GTEST_SKIP() << "index keys are not exchanged: check_model refuses it";
  REQUIRE_OK(const auto loaded, load(golden_->checkpoint, DType::f32));
  REQUIRE_OK(const auto expected, all_logits(*loaded.runner, whole));
  const MeshRanks ways[] = {{.shape = {.context = 2}},
                            {.shape = {.context = 3}},
                            {.shape = {.context = 2, .tensor = 2}, .sequence_parallel = true},
                            {.shape = {.pipeline = 2, .context = 2, .tensor = 2}}};
  for (const MeshRanks& way : ways) {
    // Passes of one token are not divided, those of 7 unevenly, and the last ones of a prompt often
    // have too few rows to be divided.
    for (const std::int32_t chunk : {1, 7, whole}) {
      REQUIRE_OK(const auto ranks,
                 run_ranks(golden_->checkpoint, DType::f32, way,
                           [&](Runner& runner, int) { return all_logits(runner, chunk); }));
      const std::size_t last_stage = ranks.size() - ranks.size() / way.shape.pipeline;
      for (std::size_t rank = last_stage; rank < ranks.size(); ++rank) {
        expect_same_bits(ranks[rank], expected,
                         std::to_string(way.shape.context) + " context ranks, passes of " +
                             std::to_string(chunk) + ", rank " + std::to_string(rank));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Exactness, testing::ValuesIn(golden_model_names()),
                         [](const auto& info) { return name_in_test(info.param); });

TEST(ExactnessOfReplicatedHeads, four_tensor_ranks_over_two_kv_heads_give_the_bits_of_one) {
  const auto golden = golden_model("qwen3moe-a");
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  const auto body = [&](Runner& runner) -> Result<std::vector<float>> {
    std::vector<float> logits;
    Sequence sequence{prompts.front().ids};
    sequence.tokens.insert(sequence.tokens.end(), prompts.back().ids.begin(),
                           prompts.back().ids.end());
    TROUPE_CHECK(runner.feed(sequence, whole, logits));
    return logits;
  };
  REQUIRE_OK(const auto loaded, load(golden->checkpoint, DType::f32));
  REQUIRE_OK(const auto expected, body(*loaded.runner));
  REQUIRE_OK(const auto ranks, run_ranks(golden->checkpoint, DType::f32, {.shape = {.tensor = 4}},
                                         [&](Runner& runner, int) { return body(runner); }));
  for (const auto& found : ranks) expect_same_bits(found, expected, "one of four ranks");
}

}  // namespace
}  // namespace troupe::golden
