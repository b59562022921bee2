#include "models/quantize/scale_folding.hpp"

#include <cmath>
#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/cpu/thread_pool.hpp"
#include "models/quantize/run_layer.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

std::filesystem::path model_folder(const std::string& name) {
  return test::source_path("tests/data/golden") / name;
}

/// How far two outputs are from each other, of the size of the first.
double distance(const Tensor& one, const Tensor& other) {
  double error = 0, whole = 0;
  for (std::int64_t i = 0; i < one.elements(); ++i) {
    error += std::pow(double{one.as<float>()[i]} - double{other.as<float>()[i]}, 2);
    whole += std::pow(double{one.as<float>()[i]}, 2);
  }
  return std::sqrt(error / whole);
}

class ScaleFolding : public testing::TestWithParam<std::string> {};

// Every fold is scaled by noise from 1/2 to 2; nothing is quantised.
TEST_P(ScaleFolding, leaves_what_a_layer_computes) {
  const auto folder = model_folder(GetParam());
  REQUIRE_OK(const ModelConfig config, load_model_config(folder));
  REQUIRE_OK(Checkpoint checkpoint, Checkpoint::open(folder));
  REQUIRE_OK(const auto ops, make_cpu_ops({}));
  CalibrationText text{.tokens = {}, .length = 24};
  for (std::int32_t i = 0; i < 48; ++i) {
    text.tokens.push_back((i * 37 + 11) % static_cast<std::int32_t>(config.vocab_size));
  }
  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponent(-1.0F, 1.0F);
  HostTensor before(DType::f32, {48, config.hidden_size}),
      plain = HostTensor(before->dtype(), before->shape()),
      scaled = HostTensor(before->dtype(), before->shape());
  std::size_t folds = 0;
  ThreadPool threads(2);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ASSERT_TRUE(run_layer(config, checkpoint, *ops, layer, text, before, plain).ok());
    REQUIRE_OK(LayerTensors tensors, LayerTensors::load(config, checkpoint, layer));
    for (const ScaleFold& fold : folds_of(config, tensors, true)) {
      ++folds;
      std::int64_t channels = 0;
      const auto source = tensors.find(fold.source, fold.expert);
      for (const Slice rows : source->rows) channels += rows.count;
      std::vector<float> scales;
      for (std::int64_t i = 0; i < channels; ++i) scales.push_back(std::exp2(exponent(random)));
      apply_fold(fold, tensors, scales, threads);
    }
    checkpoint.set_substitute([&](std::string_view name) -> std::optional<Tensor> {
      const LayerTensor* const tensor = tensors.find(name);
      if (tensor == nullptr || !tensor->is_changed) return std::nullopt;
      return tensor->values->reshaped(tensor->shape);
    });
    const auto ran = run_layer(config, checkpoint, *ops, layer, text, before, scaled);
    checkpoint.set_substitute(nullptr);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_LT(distance(plain, scaled), 1e-5) << "layer " << layer;
    std::swap(before, plain);
  }
  if (config.form.pre_norms) {
    EXPECT_GE(folds, static_cast<std::size_t>(config.layers));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ScaleFolding,
                         testing::Values("llama-a", "qwen2-a", "qwen3moe-a", "mixtral-a", "phi3-a",
                                         "gemma2-a", "gemma3-a", "falcon-a", "cohere-a",
                                         "starcoder2-a", "deepseek2-a", "deepseek3-a", "glm4moe-a",
                                         "qwen2moe-a", "olmo2-a", "gptoss-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace troupe
