// Phi-3 and Phi-4 (Abdin et al. 2024): Llama's layers; the checkpoint has queries, keys and values
// in one tensor, and gate and up in another; LongRoPE, in some models of a part of each head.

#include "models/families/registry.hpp"
#include "models/families/weight_tables.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules =
    join_tables(decoder_weights, stacked_query_weights, stacked_mlp_weights);

}  // namespace

constinit const Family phi3_family{
    .config = {.architecture = "Phi3ForCausalLM",
               .model_type = "phi3",
               .norm = {.eps = 1e-5F},
               .rotary_part = 1.0,
               .original_positions = 4096,
               .windows = WindowRules{}},
    .weights = weight_rules,
};

}  // namespace troupe
