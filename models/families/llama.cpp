// Llama 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024) and models that differ from them in
// their config alone: Mistral (Jiang et al. 2023; a window in every layer) and Qwen2 (Yang et al.
// 2024; biases of queries, keys and values, windows in some layers). Pre-norm layers, grouped-query
// attention, SwiGLU.

#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules =
    join_tables(decoder_weights, grouped_query_weights, dense_mlp_weights, dense_mlp_biases);

}  // namespace

constinit const Family llama_family{
    .config = {.architecture = "LlamaForCausalLM",
               .model_type = "llama",
               .attention_bias = AttentionBias::as_stated,
               .reads_mlp_bias = true},
    .weights = weight_rules,
};

constinit const Family mistral_family{
    .config = {.architecture = "MistralForCausalLM",
               .model_type = "mistral",
               .default_kv_heads = 8,
               .windows = WindowRules{.absent = 4096, .max_window_layers = {}}},
    .weights = weight_rules,
};

constinit const Family qwen2_family{
    .config = {.architecture = "Qwen2ForCausalLM",
               .model_type = "qwen2",
               .default_kv_heads = 32,
               .attention_bias = AttentionBias::always_qkv,
               .windows =
                   WindowRules{
                       .absent = 4096, .needs_use_sliding_window = true, .max_window_layers = 28}},
    .weights = weight_rules,
};

}  // namespace troupe
