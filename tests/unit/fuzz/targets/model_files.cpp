#include <cstring>
#include <numeric>

#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/families/family.hpp"
#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/model/footprint.hpp"
#include "models/model/model.hpp"
#include "models/ops/attention_limits.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/fuzz/targets/mutator.hpp"
#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view header_words[] = {"\"F8_E4M3\"", "-1",       "18446744073709551615",
                                             "[0,0]",       "\"BF16\"", "4611686018427387904"};

/// The keys that the readers of config.json look for, in all families.
constexpr std::string_view config_keys[] = {"architectures",
                                            "model_type",
                                            "hidden_size",
                                            "num_hidden_layers",
                                            "num_attention_heads",
                                            "num_key_value_heads",
                                            "head_dim",
                                            "intermediate_size",
                                            "vocab_size",
                                            "rms_norm_eps",
                                            "tie_word_embeddings",
                                            "dtype",
                                            "torch_dtype",
                                            "hidden_act",
                                            "attention_bias",
                                            "mlp_bias",
                                            "eos_token_id",
                                            "max_position_embeddings",
                                            "rope_theta",
                                            "rope_scaling",
                                            "rope_parameters",
                                            "rope_type",
                                            "factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "beta_fast",
                                            "beta_slow",
                                            "mscale",
                                            "mscale_all_dim",
                                            "attention_factor",
                                            "truncate",
                                            "partial_rotary_factor",
                                            "rope_interleave",
                                            "original_max_position_embeddings",
                                            "sliding_window",
                                            "use_sliding_window",
                                            "max_window_layers",
                                            "layer_types",
                                            "num_experts",
                                            "num_local_experts",
                                            "n_routed_experts",
                                            "num_experts_per_tok",
                                            "moe_intermediate_size",
                                            "norm_topk_prob",
                                            "decoder_sparse_step",
                                            "mlp_only_layers",
                                            "first_k_dense_replace",
                                            "n_group",
                                            "topk_group",
                                            "n_shared_experts",
                                            "routed_scaling_factor",
                                            "scoring_func",
                                            "topk_method",
                                            "q_lora_rank",
                                            "kv_lora_rank",
                                            "qk_nope_head_dim",
                                            "qk_rope_head_dim",
                                            "v_head_dim",
                                            "index_topk",
                                            "index_n_heads",
                                            "index_head_dim",
                                            "mlp_layer_types",
                                            "quantization_config"};

std::vector<ordered_json> config_values() {
  return {{"LlamaForCausalLM"},
          {"MistralForCausalLM"},
          {"MixtralForCausalLM"},
          {"Qwen2ForCausalLM"},
          {"Qwen3ForCausalLM"},
          {"Qwen3MoeForCausalLM"},
          {"DeepseekV3ForCausalLM"},
          {"DeepseekV32ForCausalLM"},
          "linear",
          "dynamic",
          "yarn",
          "llama3",
          "default",
          "float32",
          "bfloat16",
          ordered_json::object(
              {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}),
          ordered_json::object({{"type", "dynamic"}, {"factor", 2.0}}),
          ordered_json::array({"full_attention", "sliding_attention", "full_attention"}),
          1e-300,
          1e300,
          3,
          1,
          1 << 20,
          1 << 14,
          true};
}

std::string safetensors(std::string_view header, std::string_view data) {
  std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes.append(header).append(data);
}

/// Reads every byte that the file claims to have.
std::uint64_t sum_of(const Checkpoint& checkpoint) {
  std::uint64_t sum = 0;
  for (const std::string& name : checkpoint.names()) {
    const auto tensor = checkpoint.tensor(name);
    if (!tensor.ok()) continue;
    const auto* bytes = static_cast<const unsigned char*>(tensor->data());
    sum = std::accumulate(bytes, bytes + tensor->bytes(), sum);
  }
  return sum;
}

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

void changed_safetensors(Effort effort) {
  const golden::TemporaryFolder folder;
  const auto original = ordered_json::parse(R"({"__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    "d": {"dtype": "U8", "shape": [0, 7], "data_offsets": [40, 40]}})");
  const std::string data(40, 'x');
  std::uint64_t sum = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    ordered_json header = original;
    std::string text;
    if (mutator.one_in(2)) {
      mutator.json(header);
      text = dumped(header);
    } else {
      text = mutator.bytes(dumped(header), header_words);
    }
    std::string file = safetensors(text, data);
    if (mutator.one_in(4)) file = mutator.bytes(file);
    folder.write("model.safetensors", file);
    const auto checkpoint = Checkpoint::open(folder.path());
    if (checkpoint.ok()) sum += sum_of(*checkpoint);
  });
  EXPECT_GT(sum, 0U) << "no changed file was taken";
}

void changed_gguf_files(Effort effort) {
  const golden::TemporaryFolder folder;
  const auto source = golden::data_folder() / "gguf" / "qwen3-q4_k_m";
  folder.write("config.json", "{}");
  const std::string original = golden::file_bytes(source / "model.gguf");
  constexpr std::size_t head_bytes = 1200;  // which has all that is read but the tensors
  const std::string_view words[] = {"general.architecture", "qwen3", "llama",
                                    "blk.0.attn_q.weight"};
  const std::pair<const char*, Shape> wanted[] = {
      {"model.embed_tokens.weight", {128, 256}},
      {"model.layers.0.self_attn.q_proj.weight", {128, 256}},
      {"model.layers.0.mlp.down_proj.weight", {256, 256}},
      {"model.norm.weight", {256}}};
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    std::string file = mutator.bytes(original.substr(0, head_bytes), words);
    if (!mutator.one_in(4)) file.resize(head_bytes);
    folder.write("model.gguf", file + original.substr(head_bytes));
    const auto checkpoint = Checkpoint::open(folder.path());
    if (!checkpoint.ok()) return;
    for (const auto& [name, shape] : wanted) {
      const auto stored = checkpoint->stored_weight(name, shape);
      if (!stored.ok() || stored->format == nullptr) continue;
      std::vector<float> row(static_cast<std::size_t>(shape[1]));
      for (const std::int64_t at : {std::int64_t{0}, shape[0] - 1}) {
        stored->format->decode(*stored, at, 0, shape[1], row.data());
      }
      static_cast<void>(checkpoint->check_scales(name, *stored));
      ++taken;
    }
  });
  EXPECT_GT(taken, 0U) << "no changed file was taken";
}

void changed_model_configs(Effort effort) {
  const golden::TemporaryFolder folder;
  std::vector<ordered_json> configs;
  for (const auto& entry : std::filesystem::directory_iterator(golden::data_folder())) {
    for (const char* name : {"config.json", "config.v4.json"}) {
      if (!std::filesystem::exists(entry.path() / name)) continue;
      configs.push_back(ordered_json::parse(golden::file_bytes(entry.path() / name)));
    }
  }
  ASSERT_GT(configs.size(), 3U);
  REQUIRE_OK(const Mesh one, Mesh::create({}, 1));
  REQUIRE_OK(const Mesh several, Mesh::create({.data = 1, .pipeline = 2, .tensor = 2}, 2));
  REQUIRE_OK(const Checkpoint dummy, Checkpoint::dummy(DType::bf16));
  const std::vector<ordered_json> values = config_values();
  std::size_t taken = 0;
  for_seeds(effort, [&](std::uint64_t seed) {
    Mutator mutator(seed);
    ordered_json config = configs[mutator.below(configs.size())];
    for (std::size_t i = 0, changes = 1 + mutator.below(3); i < changes; ++i) {
      if (mutator.one_in(2) && config.is_object() && !config.empty()) {
        mutator.set_key(config, config_keys, values);
      } else {
        mutator.json(config);
      }
    }
    folder.write("config.json",
                 mutator.one_in(20) ? mutator.bytes(dumped(config)) : dumped(config));
    ordered_json generation = {{"eos_token_id", {4095, 3}}, {"temperature", 0.7}, {"top_k", 20}};
    mutator.json(generation);
    folder.write("generation_config.json", dumped(generation));
    const auto defaults = GenerationDefaults::load(folder.path());
    const auto model = load_model_config(folder.path());
    if (!model.ok()) return;
    if (defaults.ok()) eos_token_ids(*model, *defaults);
    for (const Mesh& mesh : {one, several}) {
      if (!check_model(*model, dummy, mesh).ok()) continue;
      ++taken;
      cache_groups(*model);
      const auto shape = attention_shape(*model, 0, {0, mesh.shape().tensor});
      if (shape.ok()) {
        EXPECT_TRUE(check_cpu_attention(*shape, 16, DType::f32).ok()) << config.dump();
      }
      const auto footprint = rank_footprint(*model, dummy, mesh, 0, {});
      EXPECT_TRUE(footprint.ok()) << footprint.error().message << "\n" << config.dump();
    }
  });
  EXPECT_GT(taken, 0U);
}

}  // namespace troupe::fuzz
