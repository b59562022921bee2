// A head in 8 bits, or not, beside layers in few bits.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "tests/golden/support/coded_experts.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/coded_numbers.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

namespace troupe::golden {
namespace {

using enum WeightEncoding;

Result<std::vector<float>> all_logits(Runner& runner) { return logits_of_prompts(runner, 30, 10); }

Result<LoadedModel> load_encoded(const std::string& name, WeightEncoding encoding,
                                 std::optional<bool> quantize_head) {
  TROUPE_TRY(auto ops, make_golden_ops(DType::f32));
  return load(golden_model(name)->checkpoint, DType::f32, {}, std::move(ops), false, {}, {},
              encoding, quantize_head);
}

double largest_difference(const std::vector<float>& some, const std::vector<float>& others) {
  double worst = 0.0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    worst = std::max(worst, std::abs(double{some[i]} - others[i]));
  }
  return worst;
}

TEST(QuantizedHead, has_the_logits_of_the_numbers_of_its_codes) {
  const auto folder = golden_model("llama-a")->checkpoint;
  REQUIRE_OK(const ModelConfig config, load_model_config(folder));
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::open(folder));
  const Shape shape{config.vocab_size, config.hidden_size};
  REQUIRE_OK(const StoredTensor stored, checkpoint.stored_weight("lm_head.weight", shape));
  StoredMatrix head = whole_matrix(stored, shape[0], shape[1]);
  head.dtype = DType::f32;
  const HostTensor numbers = numbers_of(head, coded_form(head, fp8).form.value());

  REQUIRE_OK(const auto coded, load_encoded("llama-a", fp8, true));
  REQUIRE_OK(const auto found, all_logits(*coded.runner));
  REQUIRE_OK(const auto substituted,
             load_substituted(
                 folder, DType::f32,
                 [&](std::string_view name) {
                   return name == "lm_head.weight" ? std::optional(numbers.view()) : std::nullopt;
                 },
                 fp8));
  REQUIRE_OK(const auto expected, all_logits(*substituted.runner));
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LE(largest_difference(found, expected), 1e-4);

  REQUIRE_OK(const auto plain, load_encoded("llama-a", fp8, {}));
  REQUIRE_OK(const auto unrounded, all_logits(*plain.runner));
  const auto [least, most] = std::ranges::minmax(unrounded);
  const double change = largest_difference(found, unrounded);
  EXPECT_GT(change, 1e-3);
  EXPECT_LT(change, 0.05 * (most - least));
}

TEST(QuantizedHead, is_there_if_it_is_asked_for) {
  const auto is_head_of_codes = [](const LoadedModel& loaded) {
    const testing::Matcher<std::vector<std::string>> has_one = testing::Contains(
        testing::AllOf(testing::HasSubstr("codes"), testing::ContainsRegex("[:,] head")));
    return testing::Value(loaded.model->kernels(), has_one);
  };
  for (const std::string name : {"llama-a", "phi3-a"}) {  // the latter's is tied
    for (const WeightEncoding encoding : {fp8, int8, int4, w8a8}) {
      REQUIRE_OK(const auto standard, load_encoded(name, encoding, {}));
      EXPECT_EQ(is_head_of_codes(standard), encoding != fp8) << name;
      REQUIRE_OK(const auto coded, load_encoded(name, encoding, true));
      EXPECT_TRUE(is_head_of_codes(coded)) << name;
      REQUIRE_OK(const auto plain, load_encoded(name, encoding, false));
      EXPECT_FALSE(is_head_of_codes(plain)) << name;
    }
  }
}

TEST(QuantizedHead, has_the_same_bits_however_ranks_share_its_rows) {
  for (const std::string name : {"llama-a", "phi3-a"}) {
    REQUIRE_OK(const auto loaded, load_encoded(name, fp8, true));
    REQUIRE_OK(const auto alone, all_logits(*loaded.runner));
    REQUIRE_OK(const auto found,
               run_ranks(golden_model(name)->checkpoint, DType::f32,
                         {.shape = {.tensor = 2}, .encoding = fp8, .quantize_head = true},
                         [](Runner& runner, int) { return all_logits(runner); }));
    for (const auto& of_rank : found) expect_same_bits(of_rank, alone, name);
  }
}

}  // namespace
}  // namespace troupe::golden
