#pragma once

namespace troupe::test {

/// The config.json of a model that costs almost nothing: one layer of 32 dimensions with 64 tokens.
inline constexpr const char* empty_model =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
 "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
 "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 64, "tie_word_embeddings": true,
 "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 512,
 "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16", "hidden_act": "silu"})";

}  // namespace troupe::test
