// Models whose KV cache has codes of 8 or 4 bits: how near they are to those without, and that
// their bits do not depend on how passes are cut or on ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/families/family.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

namespace troupe::golden {
namespace {

/// Prompts of a golden model, one behind the other.
std::vector<std::int32_t> prompt_of(const GoldenModel& model) {
  std::vector<std::int32_t> ids;
  const auto prompts = read_prompts(model.logits);
  if (!prompts.ok()) return ids;
  for (const GoldenPrompt& one : *prompts) ids.insert(ids.end(), one.ids.begin(), one.ids.end());
  ids.resize(std::min<std::size_t>(ids.size(), 160));
  return ids;
}

Result<std::vector<float>> logits_of(Runner& runner, const std::vector<std::int32_t>& ids,
                                     std::int32_t chunk) {
  std::vector<float> logits;
  Sequence sequence{ids};
  TROUPE_CHECK(runner.feed(sequence, chunk, logits));
  return logits;
}

Result<std::vector<float>> logits_of(const std::filesystem::path& folder,
                                     const std::vector<std::int32_t>& ids, std::int32_t chunk,
                                     std::optional<DType> kv_codes,
                                     const KvResiduals& residuals = {}) {
  TROUPE_TRY(auto ops, make_golden_ops(DType::f32));
  TROUPE_TRY(const LoadedModel loaded,
             load(folder, DType::f32, {}, std::move(ops), false, kv_codes, residuals));
  return logits_of(*loaded.runner, ids, chunk);
}

/// The mean difference of the log-probabilities of the prompt's tokens.
double mean_difference(std::span<const float> a, std::span<const float> b,
                       const std::vector<std::int32_t>& ids) {
  const std::size_t vocab = a.size() / ids.size();
  double sum = 0.0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto next = static_cast<std::size_t>(ids[i + 1]);
    sum += std::abs(log_softmax(a.subspan(i * vocab, vocab))[next] -
                    log_softmax(b.subspan(i * vocab, vocab))[next]);
  }
  return sum / static_cast<double>(ids.size() - 1);
}

class KvCodes : public testing::TestWithParam<std::string> {};

TEST_P(KvCodes, change_log_probabilities_little_and_int8_less_than_fp8) {
  const auto model = golden_model(GetParam());
  if (!model) GTEST_SKIP() << missing_model_message(GetParam());
  const std::vector<std::int32_t> ids = prompt_of(*model);
  REQUIRE_OK(const auto plain, logits_of(model->checkpoint, ids, whole, std::nullopt));
  REQUIRE_OK(const auto int8, logits_of(model->checkpoint, ids, whole, DType::i8));
  REQUIRE_OK(const auto fp8, logits_of(model->checkpoint, ids, whole, DType::f8_e4m3));
  const double of_int8 = mean_difference(int8, plain, ids),
               of_fp8 = mean_difference(fp8, plain, ids);
  RecordProperty("int8", std::to_string(of_int8));
  RecordProperty("fp8", std::to_string(of_fp8));
  EXPECT_GT(of_int8, 0.0);
  // Random weights give sharp attention, and experts that are chosen by a hair.
  EXPECT_LT(of_int8, 0.15);
  EXPECT_LT(of_fp8, 0.4);
  EXPECT_LT(of_int8, 0.7 * of_fp8);
}

TEST_P(KvCodes, give_the_same_bits_however_the_prompt_is_cut_and_spread) {
  const auto model = golden_model(GetParam());
  if (!model) GTEST_SKIP() << missing_model_message(GetParam());
  const std::vector<std::int32_t> ids = prompt_of(*model);
  for (const DType codes : {DType::i8, DType::f8_e4m3}) {
    SCOPED_TRACE(to_string(codes));
    REQUIRE_OK(const auto expected, logits_of(model->checkpoint, ids, whole, codes));
    for (const std::int32_t chunk : {1, 23}) {
      REQUIRE_OK(const auto found, logits_of(model->checkpoint, ids, chunk, codes));
      expect_same_bits(found, expected, "passes of " + std::to_string(chunk) + " tokens");
    }
    for (const MeshShape shape :
         {MeshShape{.pipeline = 2}, MeshShape{.tensor = 2}, MeshShape{.context = 2}}) {
      if (shape.context > 1 && GetParam() == "deepseek32-a") continue;  // not of sparse attention
      REQUIRE_OK(const auto ranks,
                 run_ranks(model->checkpoint, DType::f32, {.shape = shape, .kv_codes = codes},
                           [&](Runner& runner, int) { return logits_of(runner, ids, 40); }));
      expect_same_bits(ranks.back(), expected, "the last of two ranks");
    }
  }
}

TEST_P(KvCodes, of_4_bits_give_the_same_bits_and_come_nearer_with_residuals) {
  const auto model = golden_model(GetParam());
  if (!model) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const ModelConfig config, load_model_config(model->checkpoint));
  const std::vector<std::int32_t> ids = prompt_of(*model);
  if (config.latent) {
    const auto refused = logits_of(model->checkpoint, ids, whole, DType::i4x2);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("latent attention"), std::string::npos);
    return;
  }
  REQUIRE_OK(const auto plain, logits_of(model->checkpoint, ids, whole, std::nullopt));
  double before = std::numeric_limits<double>::infinity();
  for (const KvResidual kind : {KvResidual::none, KvResidual::keys, KvResidual::all}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const KvResiduals residuals{kind};
    REQUIRE_OK(const auto expected,
               logits_of(model->checkpoint, ids, whole, DType::i4x2, residuals));
    const double difference = mean_difference(expected, plain, ids);
    EXPECT_GT(difference, 0.0);
    EXPECT_LT(difference, before);
    before = difference;
    REQUIRE_OK(const auto found, logits_of(model->checkpoint, ids, 23, DType::i4x2, residuals));
    expect_same_bits(found, expected, "passes of 23 tokens");
    for (const MeshShape shape :
         {MeshShape{.pipeline = 2}, MeshShape{.tensor = 2}, MeshShape{.context = 2}}) {
      REQUIRE_OK(const auto ranks,
                 run_ranks(model->checkpoint, DType::f32,
                           {.shape = shape, .kv_codes = DType::i4x2, .kv_residuals = residuals},
                           [&](Runner& runner, int) { return logits_of(runner, ids, 40); }));
      expect_same_bits(ranks.back(), expected, "the last of two ranks");
    }
  }
  if (!config.windows.empty()) return;  // layers share cache tensors
  const KvResiduals of_first{KvResidual::all, {0}};
  REQUIRE_OK(const auto some, logits_of(model->checkpoint, ids, whole, DType::i4x2, of_first));
  REQUIRE_OK(const auto none, logits_of(model->checkpoint, ids, whole, DType::i4x2));
  EXPECT_NE(std::memcmp(some.data(), none.data(), none.size() * sizeof(float)), 0);
  REQUIRE_OK(
      const auto stages,
      run_ranks(model->checkpoint, DType::f32,
                {.shape = {.pipeline = 2}, .kv_codes = DType::i4x2, .kv_residuals = of_first},
                [&](Runner& runner, int) { return logits_of(runner, ids, 40); }));
  expect_same_bits(stages.back(), some, "the second stage, which has no residuals");
}

// Full attention, windows, soft caps, sinks, latent and sparse attention, norms over all heads.
INSTANTIATE_TEST_SUITE_P(Golden, KvCodes,
                         testing::Values("llama-a", "qwen3moe-a", "mistral-a", "gemma2-a",
                                         "gptoss-a", "deepseek3-a", "deepseek32-a", "olmo2-a"),
                         [](const auto& info) { return name_in_test(info.param); });

/// Of the perplexity's windows, and of some of them, as each takes a while.
Result<double> mean_nll(const std::filesystem::path& folder, DType kv_dtype) {
  TROUPE_TRY(auto ops, make_golden_ops(DType::bf16));
  TROUPE_TRY(const LoadedModel loaded,
             load(folder, DType::bf16, {}, std::move(ops), false, kv_dtype));
  TROUPE_TRY(const auto windows, read_windows());
  const std::size_t count = std::min<std::size_t>(windows.size(), 8);
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    TROUPE_TRY(const double nll, window_nll(*loaded.runner, windows[i]));
    sum += nll;
  }
  return sum / static_cast<double>(count);
}

class KvCodesOfFable : public testing::TestWithParam<std::string> {};

TEST_P(KvCodesOfFable, raise_the_perplexity_by_a_thousandth_or_less) {
  const auto model = golden_model(GetParam());
  if (!model) GTEST_SKIP() << missing_model_message(GetParam());
  REQUIRE_OK(const double plain, mean_nll(model->checkpoint, DType::bf16));
  for (const DType codes : {DType::i8, DType::f8_e4m3}) {
    REQUIRE_OK(const double nll, mean_nll(model->checkpoint, codes));
    RecordProperty(std::string(to_string(codes)), std::to_string(std::expm1(nll - plain)));
    // So few windows tell the rise of fp8 to a thousandth or two.
    EXPECT_LT(std::expm1(nll - plain), codes == DType::i8 ? 0.001 : 0.004) << to_string(codes);
    EXPECT_NE(nll, plain) << to_string(codes);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KvCodesOfFable,
                         testing::Values("fable-moe", "fable-draft", "fable-dense"),
                         [](const auto& info) { return name_in_test(info.param); });

/// llama-a with fixed scales for its KV cache, as compressed-tensors writes them.
class WithScales {
 public:
  explicit WithScales(float key_scale, float value_scale) {
    const std::filesystem::path source = data_folder() / "llama-a";
    auto object = nlohmann::json::parse(file_bytes(source / "config.json"));
    object["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "float-quantized"},
                                     {"config_groups", nlohmann::json::object()},
                                     {"ignore", nlohmann::json::array()},
                                     {"kv_cache_scheme",
                                      {{"num_bits", 8},
                                       {"type", "float"},
                                       {"strategy", "tensor"},
                                       {"symmetric", true},
                                       {"dynamic", false}}}};
    folder_.write("config.json", object.dump());
    const auto checkpoint = Checkpoint::open(source);
    auto tensors = read_all(*checkpoint);
    const auto add = [&](const std::string& name, float scale) {
      std::string bytes(sizeof scale, '\0');
      std::memcpy(bytes.data(), &scale, sizeof scale);
      tensors[name] = {"F32", {1}, bytes};
    };
    for (int layer = 0; layer < object.at("num_hidden_layers").get<int>(); ++layer) {
      const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
      add(attention + "k_scale", key_scale);
      add(attention + "v_scale", value_scale);
    }
    folder_.write("model.safetensors", safetensors_bytes(tensors));
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST(FixedKvScales, of_a_checkpoint_are_those_of_fp8_caches_alone) {
  const auto model = golden_model("llama-a");
  const std::vector<std::int32_t> ids = prompt_of(*model);
  REQUIRE_OK(const auto plain, logits_of(model->checkpoint, ids, whole, std::nullopt));
  REQUIRE_OK(const auto own, logits_of(model->checkpoint, ids, whole, DType::f8_e4m3));
  const WithScales fitting(0.02F, 0.01F), tiny(1e-4F, 1e-4F);
  REQUIRE_OK(const auto fixed, logits_of(fitting.folder(), ids, whole, DType::f8_e4m3));
  EXPECT_LT(mean_difference(fixed, plain, ids), 2 * mean_difference(own, plain, ids));
  EXPECT_NE(std::memcmp(fixed.data(), own.data(), own.size() * sizeof(float)), 0);
  // Scales that are too small cut all that is beyond the largest code.
  REQUIRE_OK(const auto cut, logits_of(tiny.folder(), ids, whole, DType::f8_e4m3));
  EXPECT_GT(mean_difference(cut, plain, ids), 2 * mean_difference(fixed, plain, ids));
  for (const std::optional<DType> other : {std::optional<DType>(), std::optional(DType::i8)}) {
    REQUIRE_OK(const auto with, logits_of(tiny.folder(), ids, whole, other));
    REQUIRE_OK(const auto without, logits_of(model->checkpoint, ids, whole, other));
    expect_same_bits(with, without, "scales of other codes");
  }
}

TEST(FixedKvScales, that_are_no_positive_numbers_are_refused) {
  const WithScales wrong(0.0F, 0.01F);
  const auto found = logits_of(wrong.folder(), {1, 2}, whole, DType::f8_e4m3);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("k_scale"), std::string::npos) << found.error().message;
}

}  // namespace
}  // namespace troupe::golden
