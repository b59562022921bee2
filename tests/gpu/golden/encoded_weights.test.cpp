// Models in bf16 on GPUs whose weights become codes of few bits as they are loaded, beside the same
// codes in fp32 on the CPU.
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/coded_experts.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/gpu/golden/weight_memory.hpp"
#include "tests/support/mean_difference.hpp"
#include "tests/support/require.hpp"

namespace troupe::golden {
namespace {

using enum WeightEncoding;
using tests::mean_difference;

struct Encoded {
  std::string model;
  std::string name;  ///< of the encoding
  WeightEncoding encoding;
};

/// Dense models in bf16, of which GPUs make codes of the same numbers: with biases, with norms
/// after projections, and with a tied head. Of experts the CPU makes codes that GPUs do not.
std::vector<Encoded> cases() {
  std::vector<Encoded> all;
  for (const char* model : {"fable-draft", "llama-a", "glm-a", "gemma2-a", "phi3-a"}) {
    for (const auto& [name, encoding] : {std::pair("fp8", fp8), std::pair("int8", int8),
                                         std::pair("w8a8", w8a8), std::pair("w4a16", int4)}) {
      all.push_back({model, name, encoding});
    }
  }
  return all;
}

/// The prompts' rows go through products of many rows, and those of few.
Result<std::vector<float>> prompt_logits(Runner& runner) {
  return logits_of_prompts(runner, 200, 20);
}

Result<LoadedModel> load_encoded(const std::string& model, std::unique_ptr<Ops> ops,
                                 DType precision, WeightEncoding encoding) {
  return load(golden_model(model)->checkpoint, precision, {}, std::move(ops), false, {}, {},
              encoding);
}

/// Logits in fp32 on the CPU.
Result<std::vector<float>> exact_logits(const std::string& model, WeightEncoding encoding) {
  TROUPE_TRY(auto ops, make_cpu_ops({.threads = 2, .dtype = DType::f32}));
  TROUPE_TRY(const auto loaded, load_encoded(model, std::move(ops), DType::f32, encoding));
  return prompt_logits(*loaded.runner);
}

/// Logits in bf16 on a GPU.
Result<std::vector<float>> gpu_logits(const std::string& model, WeightEncoding encoding) {
  TROUPE_TRY(auto ops, make_golden_ops(DType::bf16, 0, false, encoding));
  TROUPE_TRY(const auto loaded, load_encoded(model, std::move(ops), DType::bf16, encoding));
  return prompt_logits(*loaded.runner);
}

/// How far bf16 is from fp32 where no weight is a code.
double bf16_noise(const std::string& model) {
  static std::map<std::string, double> known;
  if (const auto at = known.find(model); at != known.end()) return at->second;
  const auto exact = exact_logits(model, plain);
  const auto found = gpu_logits(model, plain);
  EXPECT_TRUE(exact.ok() && found.ok());
  return known[model] = mean_difference(*found, *exact);
}

void PrintTo(const Encoded& encoded, std::ostream* out) {
  *out << encoded.model << ' ' << encoded.name;
}

class EncodedWeights : public testing::TestWithParam<Encoded> {
 protected:
  void SetUp() override {
    if (max_golden_ranks() < 1) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(EncodedWeights, have_the_logits_of_their_codes_in_fp32) {
  const auto& [model, name, encoding] = GetParam();
  REQUIRE_OK(const auto exact, exact_logits(model, encoding));
  REQUIRE_OK(const auto found, gpu_logits(model, encoding));
  REQUIRE_OK(const auto unquantized, exact_logits(model, plain));
  const double of_codes = mean_difference(found, exact);
  const double noise = bf16_noise(model);
  const double of_quantization = mean_difference(exact, unquantized);
  std::cout << model << ' ' << name << ": mean difference " << of_codes << ", of bf16 " << noise
            << ", of quantization " << of_quantization << '\n';
  // Rounding of rows to 8 bits, too: on GPUs only, or of rows that differ by bf16's rounding.
  const bool rounds_rows = encoding == fp8 || encoding == w8a8;
  EXPECT_LE(of_codes, 1.5 * (rounds_rows ? of_quantization : noise));
}

TEST_P(EncodedWeights, take_the_memory_that_the_footprint_says) {
  const auto& [model, name, encoding] = GetParam();
  expect_memory_of_footprint(golden_model(model)->checkpoint, encoding);
}

TEST_P(EncodedWeights, are_held_as_codes) {
  const auto& [model, name, encoding] = GetParam();
  REQUIRE_OK(auto ops, make_golden_ops(DType::bf16, 0, false, encoding));
  REQUIRE_OK(const auto loaded, load_encoded(model, std::move(ops), DType::bf16, encoding));
  EXPECT_THAT(loaded.model->kernels(), testing::Contains(testing::HasSubstr("codes")));
}

TEST_P(EncodedWeights, are_as_near_however_ranks_share_them) {
  if (max_golden_ranks() < 2) GTEST_SKIP() << "there is one device";
  const auto& [model, name, encoding] = GetParam();
  if (encoding == int4 && model != "fable-draft") {
    GTEST_SKIP() << "ranks' columns do not begin with whole groups of 32, so that some stay bf16";
  }
  REQUIRE_OK(const auto exact, exact_logits(model, encoding));
  REQUIRE_OK(const auto alone, gpu_logits(model, encoding));
  const double of_one = mean_difference(alone, exact);
  const std::pair<const char*, MeshRanks> ways[] = {
      {"tensor 2", {.shape = {.tensor = 2}}},
      {"tensor 2, sequence parallel", {.shape = {.tensor = 2}, .sequence_parallel = true}},
      {"pipeline 2", {.shape = {.pipeline = 2}}},
      {"context 2", {.shape = {.context = 2}}},
  };
  for (auto [arrangement, way] : ways) {
    way.encoding = encoding;
    REQUIRE_OK(const auto ranks,
               run_ranks(golden_model(model)->checkpoint, DType::bf16, way,
                         [](Runner& runner, int) { return prompt_logits(runner); }));
    const double of_ranks = mean_difference(ranks.back(), exact);
    std::cout << model << ' ' << name << ", " << arrangement << ": mean difference " << of_ranks
              << ", on one GPU " << of_one << '\n';
    EXPECT_LE(of_ranks, 1.5 * of_one) << arrangement;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EncodedWeights, testing::ValuesIn(cases()), [](const auto& info) {
  return name_in_test(info.param.model + "_" + info.param.name);
});

}  // namespace
}  // namespace troupe::golden
