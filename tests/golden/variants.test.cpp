#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// Variants of models for which there is no golden checkpoint, made from existing ones: what they
// must share with the original, and that they are exact.

namespace troupe::golden {
namespace {

using Tensors = std::map<std::string, RawTensor>;

/// A golden checkpoint with changed config and tensors.
class Variant {
 public:
  Variant(const std::string& name, const std::function<void(nlohmann::json&)>& change_config,
          const std::function<void(Tensors&)>& change_tensors) {
    const std::filesystem::path source = data_folder() / name;
    auto object = nlohmann::json::parse(file_bytes(source / "config.json"));
    change_config(object);
    folder_.write("config.json", object.dump());
    const auto checkpoint = Checkpoint::open(source);
    EXPECT_TRUE(checkpoint.ok());
    if (!checkpoint.ok()) return;
    Tensors tensors = read_all(*checkpoint);
    change_tensors(tensors);
    folder_.write("model.safetensors", safetensors_bytes(tensors));
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

RawTensor floats(const std::vector<std::int64_t>& shape, float scale, unsigned seed) {
  RawTensor tensor{"F32", shape, {}};
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  std::mt19937 engine(seed);
  std::normal_distribution<float> distribution(0.0F, 1.0F);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = scale * distribution(engine);
    tensor.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return tensor;
}

/// Logits of every row of a prompt of random ids up to `last_id`, seed 41.
Result<std::vector<float>> logits_of(Runner& runner, int last_id = 500) {
  std::mt19937 engine(41);
  Sequence sequence;
  for (int i = 0; i < 90; ++i) {
    sequence.tokens.push_back(std::uniform_int_distribution(0, last_id)(engine));
  }
  std::vector<float> logits;
  TROUPE_CHECK(runner.feed(sequence, 32, logits));
  runner.release(sequence);
  return logits;
}

Result<std::vector<float>> logits_of(const std::filesystem::path& folder, int last_id = 500) {
  TROUPE_TRY(const LoadedModel loaded, load(folder, DType::f32));
  return logits_of(*loaded.runner, last_id);
}

void expect_exact(const std::filesystem::path& folder, const std::vector<float>& expected) {
  const MeshRanks ways[] = {{.shape = {.tensor = 2}},
                            {.shape = {.tensor = 2}, .sequence_parallel = true},
                            {.shape = {.pipeline = 2, .tensor = 2}}};
  for (const MeshRanks& way : ways) {
    REQUIRE_OK(const auto ranks, run_ranks(folder, DType::f32, way,
                                           [](Runner& runner, int) { return logits_of(runner); }));
    expect_same_bits(ranks.back(), expected, "the last rank");
  }
}

/// llama-a with biases of all four projections.
Variant llama_with_biases(float scale) {
  return {"llama-a", [](nlohmann::json& config) { config["attention_bias"] = true; },
          [=](Tensors& tensors) {
            unsigned seed = 0;
            for (int layer = 0; layer < 3; ++layer) {
              const std::string block = "model.layers." + std::to_string(layer) + ".self_attn.";
              tensors[block + "q_proj.bias"] = floats({4 * 32}, scale, ++seed);
              tensors[block + "k_proj.bias"] = floats({2 * 32}, scale, ++seed);
              tensors[block + "v_proj.bias"] = floats({2 * 32}, scale, ++seed);
              tensors[block + "o_proj.bias"] = floats({64}, scale, ++seed);
            }
          }};
}

TEST(AttentionBiases, that_are_zero_change_nothing_and_others_do) {
  REQUIRE_OK(const auto without, logits_of(data_folder() / "llama-a"));
  REQUIRE_OK(const auto zero, logits_of(llama_with_biases(0.0F).folder()));
  REQUIRE_OK(const auto some, logits_of(llama_with_biases(0.3F).folder()));
  expect_same_bits(zero, without, "zero biases");
  EXPECT_NE(some, without);
}

TEST(AttentionBiases, are_added_once_however_many_ranks_there_are) {
  const Variant variant = llama_with_biases(0.3F);
  REQUIRE_OK(const auto expected, logits_of(variant.folder()));
  expect_exact(variant.folder(), expected);
}

RawTensor from_floats(const std::vector<float>& values) {
  RawTensor tensor{"F32", {static_cast<std::int64_t>(values.size())}, {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return tensor;
}

std::vector<float> to_floats(const RawTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

using ChangeMlp = std::function<void(Tensors& tensors, const std::string& mlp, unsigned seed)>;

/// llama-a with `mlp_bias`, zero biases at first; `change` is called for each layer's MLP.
Variant llama_with_mlp_biases(const ChangeMlp& change) {
  return {"llama-a", [](nlohmann::json& config) { config["mlp_bias"] = true; },
          [=](Tensors& tensors) {
            for (unsigned layer = 0; layer < 3; ++layer) {
              const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
              tensors[mlp + "gate_proj.bias"] = floats({160}, 0.0F, 0);
              tensors[mlp + "up_proj.bias"] = floats({160}, 0.0F, 0);
              tensors[mlp + "down_proj.bias"] = floats({64}, 0.0F, 0);
              change(tensors, mlp, layer);
            }
          }};
}

void add_random_biases(Tensors& tensors, const std::string& mlp, unsigned seed) {
  tensors[mlp + "gate_proj.bias"] = floats({160}, 0.3F, 3 * seed + 1);
  tensors[mlp + "up_proj.bias"] = floats({160}, 0.3F, 3 * seed + 2);
  tensors[mlp + "down_proj.bias"] = floats({64}, 0.3F, 3 * seed + 3);
}

TEST(MlpBiases, that_are_zero_change_nothing) {
  const Variant zero = llama_with_mlp_biases([](Tensors&, const std::string&, unsigned) {});
  REQUIRE_OK(const auto without, logits_of(data_folder() / "llama-a"));
  REQUIRE_OK(const auto found, logits_of(zero.folder()));
  expect_same_bits(found, without, "zero biases");
}

TEST(MlpBiases, are_added_once_however_many_ranks_there_are) {
  const Variant variant = llama_with_mlp_biases(add_random_biases);
  REQUIRE_OK(const auto expected, logits_of(variant.folder()));
  expect_exact(variant.folder(), expected);
}

TEST(MlpBiases, go_where_the_formula_has_them) {
  // Without weights of gate and up the MLP gives the same vector for every token: down of
  // silu(gate_bias) * up_bias, computed in double here and passed as down_bias to another model.
  const auto without_inputs = [](Tensors& tensors, const std::string& mlp, unsigned seed) {
    add_random_biases(tensors, mlp, seed);
    tensors[mlp + "gate_proj.weight"] = floats({160, 64}, 0.0F, 0);
    tensors[mlp + "up_proj.weight"] = floats({160, 64}, 0.0F, 0);
    tensors[mlp + "down_proj.weight"] = floats({64, 160}, 0.1F, 50 + seed);
  };
  const auto constant = [&](Tensors& tensors, const std::string& mlp, unsigned seed) {
    without_inputs(tensors, mlp, seed);
    const auto gate = to_floats(tensors[mlp + "gate_proj.bias"]);
    const auto up = to_floats(tensors[mlp + "up_proj.bias"]);
    const auto down = to_floats(tensors[mlp + "down_proj.weight"]);
    auto sums = to_floats(tensors[mlp + "down_proj.bias"]);
    for (std::size_t row = 0; row < sums.size(); ++row) {
      double sum = sums[row];
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double g = gate[i];
        sum += down[row * gate.size() + i] * (g / (1.0 + std::exp(-g)) * up[i]);
      }
      sums[row] = static_cast<float>(sum);
    }
    tensors[mlp + "gate_proj.bias"] = tensors[mlp + "up_proj.bias"] = floats({160}, 0.0F, 0);
    tensors[mlp + "down_proj.bias"] = from_floats(sums);
  };
  REQUIRE_OK(const auto found, logits_of(llama_with_mlp_biases(without_inputs).folder()));
  REQUIRE_OK(const auto expected, logits_of(llama_with_mlp_biases(constant).folder()));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-4 * (1.0 + std::abs(expected[i]))) << "logit " << i;
  }
}

/// llama-a with heads of another size, weights of random numbers.
Variant llama_with_heads_of(std::int64_t dim) {
  return {"llama-a", [=](nlohmann::json& config) { config["head_dim"] = dim; },
          [=](Tensors& tensors) {
            unsigned seed = 70;
            for (int layer = 0; layer < 3; ++layer) {
              const std::string block = "model.layers." + std::to_string(layer) + ".self_attn.";
              tensors[block + "q_proj.weight"] = floats({4 * dim, 64}, 0.1F, ++seed);
              tensors[block + "k_proj.weight"] = floats({2 * dim, 64}, 0.1F, ++seed);
              tensors[block + "v_proj.weight"] = floats({2 * dim, 64}, 0.1F, ++seed);
              tensors[block + "o_proj.weight"] = floats({64, 4 * dim}, 0.1F, ++seed);
            }
          }};
}

TEST(HeadSizes, that_are_no_multiples_of_a_vector_are_exact) {
  for (const std::int64_t dim : {24, 40, 90}) {
    SCOPED_TRACE(testing::Message() << "head_dim " << dim);
    const Variant variant = llama_with_heads_of(dim);
    REQUIRE_OK(const auto expected, logits_of(variant.folder()));
    expect_exact(variant.folder(), expected);
  }
}

TEST(LatentModels, with_a_latent_vector_of_40_are_exact) {
  const Variant variant(
      "deepseek3-a", [](nlohmann::json& config) { config["kv_lora_rank"] = 40; },
      [](Tensors& tensors) {
        unsigned seed = 90;
        for (int layer = 0; layer < 3; ++layer) {
          const std::string block = "model.layers." + std::to_string(layer) + ".self_attn.";
          const auto heads_rows = tensors.at(block + "kv_b_proj.weight").shape[0];
          tensors[block + "kv_a_proj_with_mqa.weight"] = floats({40 + 16, 64}, 0.1F, ++seed);
          tensors[block + "kv_a_layernorm.weight"] = floats({40}, 1.0F, ++seed);
          tensors[block + "kv_b_proj.weight"] = floats({heads_rows, 40}, 0.1F, ++seed);
        }
      });
  REQUIRE_OK(const auto expected, logits_of(variant.folder()));
  expect_exact(variant.folder(), expected);
}

/// Reorders `rows` rows from row `first`, which are interleaved rotation pairs, into halves.
void put_in_halves(RawTensor& tensor, std::int64_t first, std::int64_t rows) {
  const std::size_t width = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  const std::string before = tensor.bytes;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t from = i < rows / 2 ? 2 * i : 2 * (i - rows / 2) + 1;
    tensor.bytes.replace(static_cast<std::size_t>(first + i) * width, width, before,
                         static_cast<std::size_t>(first + from) * width, width);
  }
}

TEST(LatentModels, whose_weights_rotate_in_halves_are_those_that_rotate_in_pairs) {
  const Variant halves(
      "deepseek3-a", [](nlohmann::json& config) { config["rope_interleave"] = false; },
      [](Tensors& tensors) {
        for (int layer = 0; layer < 3; ++layer) {
          const std::string block = "model.layers." + std::to_string(layer) + ".self_attn.";
          put_in_halves(tensors.at(block + "kv_a_proj_with_mqa.weight"), 32, 16);
          for (std::int64_t head = 0; head < 4; ++head) {
            put_in_halves(tensors.at(block + "q_b_proj.weight"), head * 48 + 32, 16);
          }
        }
      });
  REQUIRE_OK(const auto expected, logits_of(data_folder() / "deepseek3-a"));
  REQUIRE_OK(const auto found, logits_of(halves.folder()));
  expect_same_bits(found, expected, "weights in halves");
}

TEST(LatentModels, without_a_low_rank_query_are_exact) {
  const Variant direct(
      "deepseek3-a", [](nlohmann::json& config) { config["q_lora_rank"] = nullptr; },
      [](Tensors& tensors) {
        for (int layer = 0; layer < 3; ++layer) {
          const std::string block = "model.layers." + std::to_string(layer) + ".self_attn.";
          tensors.erase(block + "q_a_proj.weight");
          tensors.erase(block + "q_a_layernorm.weight");
          tensors.erase(block + "q_b_proj.weight");
          tensors[block + "q_proj.weight"] =
              floats({4 * 48, 64}, 0.1F, static_cast<unsigned>(layer));
        }
      });
  REQUIRE_OK(const auto expected, logits_of(direct.folder()));
  expect_exact(direct.folder(), expected);
}

TEST(LatentModels, without_shared_experts_and_groups_are_exact) {
  const Variant plain(
      "deepseek3-a",
      [](nlohmann::json& config) {
        config["n_shared_experts"] = 0;
        config["n_group"] = 1;
        config["topk_group"] = 1;
      },
      [](Tensors& tensors) {
        std::erase_if(tensors, [](const auto& entry) {
          return entry.first.find("shared_experts") != std::string::npos;
        });
      });
  REQUIRE_OK(const auto expected, logits_of(plain.folder()));
  expect_exact(plain.folder(), expected);
}

TEST(TextPart, of_a_model_with_images_is_the_text_model) {
  const Variant nested(
      "gemma3-a",
      [](nlohmann::json& config) {
        nlohmann::json text = config;
        text.erase("architectures");
        config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                  {"model_type", "gemma3"},
                  {"text_config", text}};
      },
      [](Tensors& tensors) {
        Tensors renamed;
        for (auto& [name, tensor] : tensors) renamed["language_model." + name] = tensor;
        renamed["vision_tower.patch.weight"] = floats({4, 4}, 1.0F, 7);
        tensors = renamed;
      });
  REQUIRE_OK(const auto expected, logits_of(data_folder() / "gemma3-a", 255));
  REQUIRE_OK(const auto found, logits_of(nested.folder(), 255));
  expect_same_bits(found, expected, "the text part");
}

TEST(FalconModels, with_norms_of_their_own_for_attention_and_mlp_are_exact) {
  const auto sequential = [](nlohmann::json& config) {
    config["parallel_attn"] = false;
    config["multi_query"] = false;
  };
  const Variant variant("falcon-b", sequential, [](Tensors& tensors) {
    unsigned seed = 120;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string block = "transformer.h." + std::to_string(layer) + ".";
      tensors[block + "post_attention_layernorm.weight"] = floats({64}, 1.0F, ++seed);
      tensors[block + "post_attention_layernorm.bias"] = floats({64}, 0.3F, ++seed);
      tensors[block + "self_attention.query_key_value.weight"] = floats({192, 64}, 0.1F, ++seed);
    }
  });
  REQUIRE_OK(const auto expected, logits_of(variant.folder(), 255));
  for (const MeshShape shape : {MeshShape{.tensor = 2}, MeshShape{.pipeline = 2}}) {
    REQUIRE_OK(const auto ranks,
               run_ranks(variant.folder(), DType::f32, {.shape = shape},
                         [](Runner& runner, int) { return logits_of(runner, 255); }));
    expect_same_bits(ranks.back(), expected, "the last rank");
  }
}

}  // namespace
}  // namespace troupe::golden
