#include "models/quantize/plan.hpp"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

TEST(QuantizationPlan, fuses_the_matrices_that_engines_multiply_as_one) {
  const auto folder = test::source_path("tests/data/golden/deepseek3-a");
  REQUIRE_OK(const ModelConfig config, load_model_config(folder));
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::open(folder));
  QuantizationOptions options;
  options.scheme = QuantizationScheme::nvfp4;
  REQUIRE_OK(const QuantizationPlan plan, plan_quantization(config, checkpoint, options));
  const auto fusion_of = [&](const std::string& module) {
    return plan.matrices.at("model.layers.1." + module + ".weight").fusion;
  };
  EXPECT_EQ(fusion_of("self_attn.q_a_proj"), fusion_of("self_attn.kv_a_proj_with_mqa"));
  EXPECT_EQ(fusion_of("mlp.shared_experts.gate_proj"), fusion_of("mlp.shared_experts.up_proj"));
  EXPECT_EQ(fusion_of("mlp.experts.0.gate_proj"), fusion_of("mlp.experts.0.up_proj"));
  EXPECT_NE(fusion_of("mlp.experts.0.gate_proj"), fusion_of("mlp.experts.1.gate_proj"));
  EXPECT_NE(fusion_of("mlp.experts.0.up_proj"), fusion_of("mlp.experts.0.down_proj"));
  EXPECT_NE(fusion_of("self_attn.q_a_proj"), fusion_of("self_attn.q_b_proj"));
}

}  // namespace
}  // namespace troupe
