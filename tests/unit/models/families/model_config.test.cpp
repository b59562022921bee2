#include "models/config/model_config.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/require.hpp"
#include "tests/support/source_path.hpp"
#include "tests/unit/models/families/changed_config.hpp"

namespace troupe {
namespace {

using golden::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path tiny_folder() { return golden::data_folder() / "qwen3moe-a"; }

/// The config of a small model after `change`.
Result<ModelConfig> load_tiny(const std::function<void(nlohmann::json&)>& change) {
  return load_changed("qwen3moe-a", change);
}

void expect_tiny(const ModelConfig& config) {
  EXPECT_EQ(config.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.intermediate_size, 144);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_FLOAT_EQ(config.norm.eps, 1e-6F);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_DOUBLE_EQ(config.rope.theta, 100000.0);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(511));
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->experts, 8);
  EXPECT_EQ(config.moe->top_k, 3);
  EXPECT_EQ(config.moe->intermediate_size, 48);
  EXPECT_TRUE(config.moe->normalize_top_k);
}

TEST(ModelConfig, reads_the_spelling_of_transformers_5) {
  REQUIRE_OK(const auto config, load_model_config(tiny_folder()));
  expect_tiny(config);
}

TEST(ModelConfig, reads_the_spelling_of_transformers_4_to_the_same_values) {
  for (const std::string& name : golden::tiny_model_names()) {
    const std::filesystem::path folder = golden::data_folder() / name;
    REQUIRE_OK(const auto newer, load_model_config(folder));
    REQUIRE_OK(const auto older, load_text(golden::file_bytes(folder / "config.v4.json")));
    EXPECT_EQ(newer, older) << name;
  }
}

TEST(ModelConfig, knows_sparse_layers_by_step_and_exceptions) {
  REQUIRE_OK(const auto config, load_tiny([](nlohmann::json& object) {
               object["num_hidden_layers"] = 6;
               object["decoder_sparse_step"] = 2;
               object["mlp_only_layers"] = {3};
             }));
  std::vector<std::int64_t> sparse;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.is_sparse(layer)) sparse.push_back(layer);
  }
  EXPECT_THAT(sparse, ElementsAre(1, 5));
}

TEST(ModelConfig, gives_qwen3_a_head_dim_of_128_where_the_key_is_absent) {
  REQUIRE_OK(const auto config, load_tiny([](nlohmann::json& object) {
               object["architectures"] = {"Qwen3ForCausalLM"};
               object.erase("head_dim");
             }));
  EXPECT_EQ(config.head_dim, 128);
}

TEST(ModelConfig, gives_others_the_hidden_size_over_heads_as_head_dim_where_the_key_is_absent) {
  for (const char* architecture : {"LlamaForCausalLM", "Qwen3MoeForCausalLM"}) {
    REQUIRE_OK(const auto config, load_tiny([&](nlohmann::json& object) {
                 object["architectures"] = {architecture};
                 object.erase("head_dim");
               }));
    EXPECT_EQ(config.head_dim, 64 / 4) << architecture;
  }
}

TEST(ModelConfig, reads_llama3_rope_scaling_in_both_spellings) {
  for (const std::string name : {"config.json", "config.v4.json"}) {
    REQUIRE_OK(const auto config,
               load_text(golden::file_bytes(golden::data_folder() / "llama-a" / name)));
    EXPECT_EQ(config.architecture, "LlamaForCausalLM");
    EXPECT_EQ(config.rope.theta, 500000.0) << name;
    const auto* scaling = std::get_if<Llama3RopeScaling>(&config.rope.scaling);
    ASSERT_NE(scaling, nullptr) << name;
    EXPECT_EQ(scaling->factor, 8.0);
    EXPECT_EQ(scaling->original_positions, 64.0);
  }
}

TEST(ModelConfig, gives_every_layer_of_mistral_its_window) {
  REQUIRE_OK(const auto config, load_model_config(golden::data_folder() / "mistral-a"));
  EXPECT_THAT(config.windows, ElementsAre(32, 32, 32));
  REQUIRE_OK(const auto none, load_changed("mistral-a", [](nlohmann::json& object) {
               object["sliding_window"] = nullptr;
             }));
  EXPECT_EQ(none.window_of(1), 0);
  REQUIRE_OK(const auto absent, load_changed("mistral-a", [](nlohmann::json& object) {
               object.erase("sliding_window");
               object["max_position_embeddings"] = 32768;
             }));
  EXPECT_EQ(absent.window_of(1), 4096) << "transformers' default";
  REQUIRE_OK(const auto longer, load_changed("mistral-a", [](nlohmann::json& object) {
               object["sliding_window"] = 2048;
             }));
  EXPECT_EQ(longer.window_of(1), 0) << "as long as the longest sequence";
}

TEST(ModelConfig, gives_layers_of_qwen2_windows_by_their_types_or_their_place) {
  const auto windows = [](const std::function<void(nlohmann::json&)>& change) {
    const auto config = load_changed("qwen2-a", [&](nlohmann::json& object) {
      object["use_sliding_window"] = true;
      object["sliding_window"] = 32;
      change(object);
    });
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config->windows;
  };
  EXPECT_THAT(windows([](nlohmann::json& object) {
                object["layer_types"] = {"sliding_attention", "full_attention",
                                         "sliding_attention"};
              }),
              ElementsAre(32, 0, 32));
  EXPECT_THAT(windows([](nlohmann::json& object) {
                object.erase("layer_types");
                object["max_window_layers"] = 1;
              }),
              ElementsAre(0, 32, 32));
  EXPECT_THAT(windows([](nlohmann::json& object) { object.erase("layer_types"); }),
              testing::IsEmpty())
      << "max_window_layers is 28";
}

TEST(ModelConfig, refuses_layer_types_that_contradict_the_rest) {
  const auto refused = [](nlohmann::json types) {
    const auto config =
        load_changed("qwen2-a", [&](nlohmann::json& object) { object["layer_types"] = types; });
    return config.ok() ? "accepted" : config.error().message;
  };
  EXPECT_THAT(refused({"full_attention"}), HasSubstr("layer_types: expected a list of 3 names"));
  EXPECT_THAT(refused({"full_attention", "sliding_attention", "full_attention"}),
              HasSubstr("no sliding_window is in use"));
}

TEST(ModelConfig, knows_which_projections_have_biases) {
  REQUIRE_OK(const auto qwen2, load_model_config(golden::data_folder() / "qwen2-a"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  const auto with_bias = [](nlohmann::json& object) { object["attention_bias"] = true; };
  REQUIRE_OK(const auto llama, load_changed("llama-a", with_bias));
  EXPECT_TRUE(llama.qkv_bias);
  EXPECT_TRUE(llama.output_bias);
  const auto deepseek = load_changed("deepseek3-a", with_bias);
  ASSERT_FALSE(deepseek.ok());
  EXPECT_EQ(deepseek.error().code, ErrorCode::unsupported);
}

TEST(ModelConfig, gives_gemma_3_the_defaults_that_its_published_files_leave_out) {
  REQUIRE_OK(const auto config, load_text(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
    "model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024}})"));
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1, 106));
  EXPECT_EQ(config.window_of(4), 1024);
  EXPECT_EQ(config.window_of(5), 0);
  EXPECT_EQ(config.rope_of(4).theta, 10000.0);
  EXPECT_EQ(config.rope_of(5).theta, 1e6);
  EXPECT_EQ(config.max_position_embeddings, 131072) << "the factor of 8 is in it already";
}

TEST(ModelConfig, reads_mlp_bias_where_transformers_does) {
  const auto with_bias = [](nlohmann::json& object) { object["mlp_bias"] = true; };
  REQUIRE_OK(const auto llama, load_changed("llama-a", with_bias));
  EXPECT_TRUE(llama.mlp_bias);
  for (const char* name : {"qwen2-a", "mistral-a", "qwen3moe-a", "deepseek3-a"}) {
    REQUIRE_OK(const auto config, load_changed(name, with_bias));
    EXPECT_FALSE(config.mlp_bias) << name;
  }
}

TEST(ModelConfig, reads_the_experts_of_mixtral) {
  REQUIRE_OK(const auto config, load_model_config(golden::data_folder() / "mixtral-a"));
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->experts, 8);
  EXPECT_EQ(config.moe->top_k, 2);
  EXPECT_EQ(config.moe->intermediate_size, 64);
  EXPECT_TRUE(config.moe->normalize_top_k);
  EXPECT_TRUE(config.is_sparse(0));
}

TEST(ModelConfig, reads_latent_attention_and_the_experts_of_deepseek_v3) {
  REQUIRE_OK(const auto config, load_model_config(golden::data_folder() / "deepseek3-a"));
  EXPECT_EQ(config.latent, (LatentConfig{.query_rank = 48,
                                         .rank = 32,
                                         .unrotated_dim = 32,
                                         .rotated_dim = 16,
                                         .value_dim = 32,
                                         .interleaved_rope = true}));
  EXPECT_EQ(config.kv_heads, 1);
  EXPECT_EQ(config.head_dim, 48);
  EXPECT_EQ(config.rotated_dim(), 16);
  EXPECT_EQ(config.moe, (MoeConfig{.experts = 16,
                                   .top_k = 4,
                                   .intermediate_size = 32,
                                   .normalize_top_k = true,
                                   .dense_layers = {0},
                                   .scoring = RouterScoring::sigmoid,
                                   .choice_bias = true,
                                   .groups = 4,
                                   .top_groups = 2,
                                   .weight_scale = 2.5,
                                   .shared_intermediate_size = 32}));
  REQUIRE_OK(const auto direct, load_changed("deepseek3-a", [](nlohmann::json& object) {
               object["q_lora_rank"] = nullptr;
             }));
  EXPECT_EQ(direct.latent->query_rank, 0);
}

TEST(ModelConfig, refuses_what_it_would_compute_wrongly_of_deepseek_v3) {
  const std::vector<std::pair<std::string, nlohmann::json>> wrong = {
      {"scoring_func", "softmax"},
      {"topk_method", "greedy"},
      {"moe_layer_freq", 2},
      {"n_group", 3},
      {"n_group", 16},
      {"topk_group", 5},
      {"qk_rope_head_dim", 15},
      {"kv_lora_rank", nullptr},
  };
  for (const auto& [key, value] : wrong) {
    const auto config =
        load_changed("deepseek3-a", [&](nlohmann::json& object) { object[key] = value; });
    ASSERT_FALSE(config.ok()) << key << " = " << value;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
  const auto few = load_changed("deepseek3-a", [](nlohmann::json& object) {
    object["topk_group"] = 1;
    object["num_experts_per_tok"] = 5;
  });
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("num_experts_per_tok 5 is more than topk_group 1"));
}

/// llama-a with another rope.
Result<ModelConfig> with_rope(nlohmann::json rope) {
  return load_changed("llama-a", [&](nlohmann::json& object) { object["rope_parameters"] = rope; });
}

TEST(ModelConfig, reads_linear_and_dynamic_rope_and_lengthens_the_longest_sequence) {
  REQUIRE_OK(const auto linear, with_rope({{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(std::get<LinearRopeScaling>(linear.rope.scaling), LinearRopeScaling{4.0});
  EXPECT_EQ(linear.max_position_embeddings, 4 * 2048);
  REQUIRE_OK(const auto dynamic, with_rope({{"type", "dynamic"}, {"factor", 2.5}}));
  EXPECT_EQ(std::get<DynamicRopeScaling>(dynamic.rope.scaling), (DynamicRopeScaling{2.5, 2048.0}));
  EXPECT_EQ(dynamic.max_position_embeddings, 5120);
}

TEST(ModelConfig, reads_yarn_with_the_factors_that_follow_from_it) {
  REQUIRE_OK(const auto plain, with_rope({{"rope_type", "yarn"},
                                          {"factor", 4.0},
                                          {"original_max_position_embeddings", 1024}}));
  const auto& scaling = std::get<YarnRopeScaling>(plain.rope.scaling);
  EXPECT_EQ(scaling.original_positions, 1024.0);
  EXPECT_NEAR(scaling.table_factor, 1.138629436111989, 1e-12);
  EXPECT_EQ(scaling.attention_factor, 1.0);
  EXPECT_EQ(plain.max_position_embeddings, 4096);

  // DeepSeek-V3's: the table keeps its scale, attention is scaled instead.
  REQUIRE_OK(const auto deepseek, with_rope({{"type", "yarn"},
                                             {"factor", 40},
                                             {"original_max_position_embeddings", 4096},
                                             {"beta_fast", 32},
                                             {"beta_slow", 1},
                                             {"mscale", 1.0},
                                             {"mscale_all_dim", 1.0}}));
  const auto& other = std::get<YarnRopeScaling>(deepseek.rope.scaling);
  EXPECT_EQ(other.table_factor, 1.0);
  EXPECT_NEAR(other.attention_factor, 1.3688879454113936 * 1.3688879454113936, 1e-12);
  EXPECT_EQ(deepseek.max_position_embeddings, 163840);
}

TEST(ModelConfig, wants_a_factor_where_the_rope_type_does) {
  for (const std::string type : {"linear", "dynamic", "yarn"}) {
    const auto config = with_rope({{"rope_type", type}});
    ASSERT_FALSE(config.ok()) << type;
    EXPECT_THAT(config.error().message, HasSubstr("missing key factor"));
  }
}

TEST(ModelConfig, refuses_an_unknown_architecture_with_the_list_of_known_ones) {
  const auto config =
      load_tiny([](nlohmann::json& object) { object["architectures"] = {"FooBarForCausalLM"}; });
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_THAT(config.error().message,
              AllOf(HasSubstr("config.json"), HasSubstr("FooBarForCausalLM"),
                    HasSubstr("Qwen3ForCausalLM"), HasSubstr("Qwen3MoeForCausalLM")));
}

TEST(ModelConfig, says_line_and_column_of_a_syntax_error) {
  const auto config = load_text("{\n  \"hidden_size\": 64,\n  oops: 1\n}\n");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(config.error().message, HasSubstr("config.json:3:3:"));
}

TEST(ModelConfig, says_that_the_file_is_missing) {
  const TemporaryFolder folder;
  const auto config = load_model_config(folder.path());
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::not_found);
  EXPECT_THAT(config.error().message, HasSubstr((folder.path() / "config.json").string()));
}

TEST(ModelConfig, names_every_required_key_that_is_missing) {
  for (const std::string key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "vocab_size", "max_position_embeddings", "num_local_experts", "num_experts_per_tok",
        "moe_intermediate_size"}) {
    const auto config = load_tiny([&](nlohmann::json& object) { object.erase(key); });
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_THAT(config.error().message, AllOf(HasSubstr("missing key"), HasSubstr(key)));
  }
}

TEST(ModelConfig, refuses_absurd_values_naming_key_and_value) {
  const std::vector<std::pair<std::string, nlohmann::json>> wrong = {
      {"hidden_size", 0},         {"hidden_size", -64},
      {"hidden_size", "64"},      {"hidden_size", 1e30},
      {"hidden_size", 1LL << 40}, {"vocab_size", 18446744073709551615ULL},
      {"num_hidden_layers", 1e9}, {"num_key_value_heads", 5},
      {"head_dim", 31},           {"num_experts_per_tok", 9},
      {"rms_norm_eps", -1.0},     {"mlp_only_layers", {7}},
      {"eos_token_id", "</s>"},   {"tie_word_embeddings", 1},
  };
  for (const auto& [key, value] : wrong) {
    const auto config = load_tiny([&](nlohmann::json& object) { object[key] = value; });
    ASSERT_FALSE(config.ok()) << key << " = " << value;
    EXPECT_EQ(config.error().code, ErrorCode::corrupt_data) << config.error().message;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
}

TEST(ModelConfig, refuses_features_it_would_compute_wrongly) {
  const std::vector<std::pair<std::string, nlohmann::json>> features = {
      {"hidden_act", "gelu"},
      {"quantization_config", {{"bits", 4}}},
      {"quantization_config", {{"quant_method", "fp8"}, {"fmt", "e5m2"}}},
      {"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {64}}}},
      {"layer_types", {"full_attention", "chunked_attention", "full_attention"}},
      {"rope_parameters", {{"rope_type", "ntk"}, {"factor", 4.0}}},
      {"torch_dtype", "float8"},
  };
  for (const auto& [key, value] : features) {
    const auto config = load_tiny([&](nlohmann::json& object) {
      if (key == "torch_dtype") object.erase("dtype");
      object[key] = value;
    });
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::unsupported) << config.error().message;
  }
}

TEST(ModelConfig, refuses_quantised_weights_that_stand_beside_the_part_that_it_reads) {
  const auto config = load_text(R"({
    "architectures": ["Gemma3ForConditionalGeneration"],
    "quantization_config": {"quant_method": "bitsandbytes"},
    "text_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6}})");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_THAT(config.error().message, HasSubstr("quant_method bitsandbytes"));
}

TEST(ModelConfig, accepts_fp8_weights_in_blocks) {
  const auto config = load_tiny([](nlohmann::json& object) {
    object["quantization_config"] = {{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"activation_scheme", "dynamic"},
                                     {"weight_block_size", {128, 128}}};
  });
  EXPECT_TRUE(config.ok()) << config.error().message;
}

TEST(ModelConfig, accepts_a_sliding_window_that_is_not_used) {
  const auto config = load_tiny([](nlohmann::json& object) {
    object["sliding_window"] = 4096;
    object["use_sliding_window"] = false;
  });
  EXPECT_TRUE(config.ok());
}

TEST(ModelConfig, refuses_json_nested_a_hundred_thousand_deep) {
  const auto config =
      load_text(fmt::format(R"({{"architectures": ["Qwen3ForCausalLM"], "hidden_size": {}{}}})",
                            std::string(100'000, '['), std::string(100'000, ']')));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.error().message, HasSubstr("nested deeper than 64 levels"));
}

TEST(GenerationDefaults, reads_what_servers_take_as_defaults) {
  const std::filesystem::path demo = test::source_path("configs/demo/fable-moe");
  REQUIRE_OK(const auto defaults, GenerationDefaults::load(demo));
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(4095, 4093));
  EXPECT_EQ(defaults.temperature, 0.7);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.top_p, 0.95);
  EXPECT_FALSE(defaults.min_p.has_value());
  REQUIRE_OK(const auto config, load_model_config(demo));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(4095));
  EXPECT_THAT(eos_token_ids(config, defaults), ElementsAre(4093, 4095));
}

TEST(GenerationDefaults, read_max_new_tokens) {
  const TemporaryFolder folder;
  folder.write("generation_config.json", R"({"max_new_tokens": 2048})");
  REQUIRE_OK(const auto defaults, GenerationDefaults::load(folder.path()));
  EXPECT_EQ(defaults.max_new_tokens, 2048);
  folder.write("generation_config.json", R"({"max_new_tokens": 0})");
  EXPECT_FALSE(GenerationDefaults::load(folder.path()).ok());
}

TEST(GenerationDefaults, are_empty_without_a_file_and_refuse_a_wrong_value) {
  const TemporaryFolder folder;
  REQUIRE_OK(const auto empty, GenerationDefaults::load(folder.path()));
  EXPECT_TRUE(empty.eos_token_ids.empty());
  EXPECT_FALSE(empty.temperature.has_value());
  folder.write("generation_config.json", R"({"eos_token_id": 2, "temperature": "hot"})");
  const auto wrong = GenerationDefaults::load(folder.path());
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("temperature: expected a number"));
}

}  // namespace
}  // namespace troupe
