#include "models/families/llama.hpp"

#include "models/families/weight_tables.hpp"
#include "models/layers/attention/attention.hpp"
#include "models/layers/dense_mlp.hpp"

namespace troupe {

namespace {

constexpr auto weight_rules =
    join_tables(decoder_weights, grouped_query_weights, dense_mlp_weights, dense_mlp_biases);

Result<DecoderLayer> build_layer(const LayerContext& context, std::int64_t layer) {
  TROUPE_TRY(auto attention, Attention::create(context, layer, {}));
  TROUPE_TRY(auto mlp, DenseMlp::create(context, layer, {.with_biases = context.config.mlp_bias}));
  return DecoderLayer::create(context, layer, std::move(attention), std::move(mlp));
}

constexpr Family family{weight_rules, build_layer};

}  // namespace

const Family& llama_family() { return family; }

}  // namespace troupe
