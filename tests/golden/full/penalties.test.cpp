#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/sampler/sampler.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Penalties, of_greedy_answers_give_the_reference_tokens) {
  const auto model = golden_model("fable-dense");
  if (!model) GTEST_SKIP() << missing_model_message("fable-dense");
  const auto file = outside_folder() / "golden" / "penalties-fable-dense.json";
  std::ifstream stream(file);
  ASSERT_TRUE(stream) << "cannot open " << file;
  const auto golden = nlohmann::json::parse(stream);
  REQUIRE_OK(const LoadedModel loaded, load(model->checkpoint, DType::f32));
  SamplerScratch scratch;
  for (const auto& entry : golden.at("cases")) {
    SamplingParams params;
    params.temperature = 0.0F;
    params.repetition_penalty = entry.at("repetition_penalty");
    params.frequency_penalty = entry.at("frequency_penalty");
    params.presence_penalty = entry.at("presence_penalty");
    const Ids prompt = entry.at("prompt_ids").get<Ids>();
    const Ids expected = entry.at("greedy_output_ids").get<Ids>();
    Sequence sequence{.tokens = prompt};
    Ids output;
    while (output.size() < expected.size()) {
      const auto rows = static_cast<std::int32_t>(sequence.tokens.size()) - sequence.computed;
      const Share share{&sequence, rows, 1};
      REQUIRE_OK(const Tensor logits, loaded.runner->pass({&share, 1}));
      output.push_back(sample(logits.span<float>(), params, {prompt, output}, scratch).id);
      sequence.tokens.push_back(output.back());
    }
    loaded.runner->release(sequence);
    EXPECT_EQ(output, expected) << entry.at("id") << ", least gap " << entry.at("greedy_min_gap");
  }
}

}  // namespace
}  // namespace troupe::golden
