#include "models/layers/weights/parameters.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace troupe {

namespace {

void replace_number(std::string& name, std::string_view place, std::int64_t number) {
  const std::size_t at = name.find(place);
  if (at != std::string::npos) name.replace(at, place.size(), fmt::to_string(number));
}

/// True if layer `layer` has a parameter for which the family's table has a rule.
bool is_used(Parameter parameter, std::int64_t layer, const ModelConfig& config) {
  const bool sparse = config.is_sparse(layer);
  const LayerForm& form = config.form;
  const bool has_mlp_norm = form.pre_norms && (!form.parallel || form.own_mlp_norm);
  switch (parameter) {
    case Parameter::attention_norm:
      return form.pre_norms;
    case Parameter::mlp_norm:
      return has_mlp_norm;
    case Parameter::attention_norm_bias:
      return form.pre_norms && config.norm.has_bias;
    case Parameter::mlp_norm_bias:
      return has_mlp_norm && config.norm.has_bias;
    case Parameter::attention_post_norm:
    case Parameter::mlp_post_norm:
      return form.post_norms;
    case Parameter::query_norm:
    case Parameter::key_norm:
      return config.query_key_norm != QueryKeyNorm::none;
    case Parameter::sinks:
      return config.attention_sinks;
    case Parameter::gate:
      return !sparse && is_gated(config.activation);
    case Parameter::up:
    case Parameter::down:
      return !sparse;
    case Parameter::gate_bias:
      return !sparse && config.mlp_bias && is_gated(config.activation);
    case Parameter::up_bias:
    case Parameter::down_bias:
      return !sparse && config.mlp_bias;
    case Parameter::router:
      return sparse;
    case Parameter::router_bias:
      return sparse && config.moe->choice_bias;
    case Parameter::router_logit_bias:
      return sparse && config.moe->logit_bias;
    case Parameter::shared_router:
      return sparse && config.moe->gated_shared_expert;
    case Parameter::shared_gate:
    case Parameter::shared_up:
    case Parameter::shared_down:
      return sparse && config.moe->shared_intermediate_size > 0;
    case Parameter::query_bias:
    case Parameter::key_bias:
    case Parameter::value_bias:
      return config.qkv_bias;
    case Parameter::output_bias:
      return config.output_bias;
    case Parameter::query:
      return !config.latent || config.latent->query_rank == 0;
    case Parameter::query_down:
    case Parameter::query_down_norm:
    case Parameter::query_up:
      return config.latent && config.latent->query_rank > 0;
    default:
      return true;
  }
}

bool is_expert_bias(Parameter parameter) {
  return parameter == Parameter::expert_gate_bias || parameter == Parameter::expert_up_bias ||
         parameter == Parameter::expert_down_bias;
}

void add_layer_uses(const WeightRule& rule, std::int64_t layer, const ModelConfig& config,
                    std::vector<WeightUse>& uses) {
  if (is_expert(rule.parameter)) {
    const bool sparse =
        config.is_sparse(layer) && (!is_expert_bias(rule.parameter) || config.moe->expert_bias);
    for (std::int64_t expert = 0; sparse && expert < config.moe->experts; ++expert) {
      uses.push_back({&rule, layer, expert});
    }
    return;
  }
  if (is_used(rule.parameter, layer, config)) uses.push_back({&rule, layer, 0});
}

Shape latent_shape(Parameter parameter, const LatentConfig& latent, const ModelConfig& config) {
  switch (parameter) {
    case Parameter::query_down:
      return {latent.query_rank, config.hidden_size};
    case Parameter::query_down_norm:
      return {latent.query_rank};
    case Parameter::query_up:
      return {config.heads * config.head_dim, latent.query_rank};
    case Parameter::latent_down:
      return {latent.rank + latent.rotated_dim, config.hidden_size};
    case Parameter::latent_norm:
      return {latent.rank};
    case Parameter::index_query:
      return {latent.index_heads * latent.index_dim, latent.query_rank};
    case Parameter::index_key:
      return {latent.index_dim, config.hidden_size};
    case Parameter::index_key_norm:
    case Parameter::index_key_norm_bias:
      return {latent.index_dim};
    case Parameter::index_weights:
      return {latent.index_heads, config.hidden_size};
    case Parameter::latent_up:
      return {config.heads * (latent.unrotated_dim + latent.value_dim), latent.rank};
    default:
      return {};
  }
}

}  // namespace

bool is_global(Parameter parameter) {
  return parameter == Parameter::embedding || parameter == Parameter::final_norm ||
         parameter == Parameter::final_norm_bias || parameter == Parameter::head;
}

bool is_expert(Parameter parameter) {
  return parameter == Parameter::expert_gate || parameter == Parameter::expert_up ||
         parameter == Parameter::expert_down || is_expert_bias(parameter);
}

bool may_be_encoded(Parameter parameter) {
  using enum Parameter;
  switch (parameter) {
    case query:
    case key:
    case value:
    case output:
    case gate:
    case up:
    case down:
    case shared_gate:
    case shared_up:
    case shared_down:
    case expert_gate:
    case expert_up:
    case expert_down:
    case query_down:
    case query_up:
    case latent_down:
      return true;
    default:
      return false;
  }
}

WeightEncoding encoding_for(Parameter parameter, WeightEncoding asked, bool is_quantized,
                            std::optional<bool> quantize_head) {
  using enum WeightEncoding;
  if (parameter == Parameter::head || parameter == Parameter::embedding) {
    const bool is_integer = asked == int8 || asked == int4 || asked == w8a8;
    if (!quantize_head.value_or(is_integer)) return plain;
    return is_integer ? int8 : asked;
  }
  if (!may_be_encoded(parameter)) return plain;
  if (!is_quantized || asked == fp8) return asked;
  return asked == w8a8 ? plain_w8a8 : plain;
}

bool is_dense(Parameter parameter) {
  switch (parameter) {
    case Parameter::embedding:
    case Parameter::head:
    case Parameter::gate:
    case Parameter::up:
    case Parameter::down:
    case Parameter::gate_bias:
    case Parameter::up_bias:
    case Parameter::down_bias:
    case Parameter::shared_gate:
    case Parameter::shared_up:
    case Parameter::shared_down:
      return true;
    default:
      return false;
  }
}

HeadLayout head_layout(Parameter parameter, const ModelConfig& config) {
  HeadLayout layout{config.heads, config.kv_heads, config.head_dim};
  if (parameter == Parameter::sinks) layout.head_dim = 1;
  if (!config.latent) return layout;
  if (parameter == Parameter::output) layout.head_dim = config.latent->value_dim;
  if (parameter == Parameter::latent_up) {
    layout.head_dim = config.latent->unrotated_dim + config.latent->value_dim;
  }
  return layout;
}

Shape shape_of(Parameter parameter, const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  const MoeConfig moe = config.moe.value_or(MoeConfig());
  const bool of_projection = config.query_key_norm == QueryKeyNorm::projection;
  switch (parameter) {
    case Parameter::embedding:
    case Parameter::head:
      return {config.vocab_size, hidden};
    case Parameter::attention_norm:
    case Parameter::mlp_norm:
    case Parameter::final_norm:
    case Parameter::attention_norm_bias:
    case Parameter::mlp_norm_bias:
    case Parameter::final_norm_bias:
    case Parameter::attention_post_norm:
    case Parameter::mlp_post_norm:
    case Parameter::expert_down_bias:
      return {hidden};
    case Parameter::query:
      return {config.heads * config.head_dim, hidden};
    case Parameter::key:
    case Parameter::value:
      return {config.kv_heads * config.head_dim, hidden};
    case Parameter::query_norm:
      return {of_projection ? config.heads * config.head_dim : config.head_dim};
    case Parameter::key_norm:
      return {of_projection ? config.kv_heads * config.head_dim : config.head_dim};
    case Parameter::sinks:
      return {config.heads};
    case Parameter::output:
      return {hidden, config.heads * head_layout(parameter, config).head_dim};
    case Parameter::query_bias:
      return {config.heads * config.head_dim};
    case Parameter::key_bias:
    case Parameter::value_bias:
      return {config.kv_heads * config.head_dim};
    case Parameter::output_bias:
      return {hidden};
    case Parameter::gate:
    case Parameter::up:
      return {inner, hidden};
    case Parameter::down:
      return {hidden, inner};
    case Parameter::gate_bias:
    case Parameter::up_bias:
      return {inner};
    case Parameter::down_bias:
      return {hidden};
    case Parameter::router:
      return {moe.experts, hidden};
    case Parameter::router_bias:
    case Parameter::router_logit_bias:
      return {moe.experts};
    case Parameter::expert_gate_bias:
    case Parameter::expert_up_bias:
      return {moe.intermediate_size};
    case Parameter::shared_router:
      return {1, hidden};
    case Parameter::expert_gate:
    case Parameter::expert_up:
      return {moe.intermediate_size, hidden};
    case Parameter::expert_down:
      return {hidden, moe.intermediate_size};
    case Parameter::shared_gate:
    case Parameter::shared_up:
      return {moe.shared_intermediate_size, hidden};
    case Parameter::shared_down:
      return {hidden, moe.shared_intermediate_size};
    default:
      return latent_shape(parameter, config.latent.value_or(LatentConfig()), config);
  }
}

Shape stored_shape(const WeightRule& rule, const ModelConfig& config) {
  const Shape own = shape_of(rule.parameter, config);
  std::int64_t rows = 0;
  switch (rule.stored_as) {
    case StoredAs::itself:
      return own;
    case StoredAs::stacked_rows:
      for (const Parameter parameter : rule.stack) rows += shape_of(parameter, config)[0];
      break;
    case StoredAs::grouped_heads:
      rows = (config.heads + 2 * config.kv_heads) * config.head_dim;
      break;
    case StoredAs::expert_columns: {
      const std::int64_t outputs = own[0] * std::ssize(rule.stack);
      if (own.rank() == 1) return {config.moe->experts, outputs};
      return {config.moe->experts, own[1], outputs};
    }
  }
  return own.rank() == 1 ? Shape{rows} : Shape{rows, own[1]};
}

std::vector<Slice> stored_rows(const WeightRule& rule, Slice rows, const ModelConfig& config) {
  if (rule.stored_as == StoredAs::stacked_rows) {
    for (const Parameter parameter : rule.stack) {
      if (parameter == rule.parameter) break;
      rows.begin += shape_of(parameter, config)[0];
    }
    return {rows};
  }
  if (rule.stored_as != StoredAs::grouped_heads) return {rows};
  const std::int64_t dim = config.head_dim, group = config.heads / config.kv_heads;
  const bool is_query =
      rule.parameter == Parameter::query || rule.parameter == Parameter::query_bias;
  const bool is_key = rule.parameter == Parameter::key || rule.parameter == Parameter::key_bias;
  std::vector<Slice> found;
  for (std::int64_t head = rows.begin / dim; head < rows.end() / dim; ++head) {
    const std::int64_t kv_head = is_query ? head / group : head;
    const std::int64_t within = is_query ? head % group : is_key ? group : group + 1;
    found.push_back({(kv_head * (group + 2) + within) * dim, dim});
  }
  return found;
}

std::string checkpoint_name(const WeightRule& rule, std::int64_t layer, std::int64_t expert) {
  std::string name = fmt::format("{}{}", rule.prefix, rule.name);
  replace_number(name, "{layer}", layer);
  replace_number(name, "{expert}", expert);
  return name;
}

std::string attention_module(std::span<const WeightRule> rules, std::int64_t layer) {
  const auto output = std::ranges::find(rules, Parameter::output, &WeightRule::parameter);
  if (output == rules.end()) return "";
  std::string module = checkpoint_name(*output, layer, 0);
  for (int parts = 0; parts < 2; ++parts) module.resize(module.rfind('.'));  // o_proj.weight
  return module;
}

std::vector<WeightUse> weights_in_use(const ModelConfig& config,
                                      std::span<const WeightRule> rules) {
  std::vector<WeightUse> uses;
  for (const WeightRule& rule : rules) {
    if (is_global(rule.parameter)) {
      const bool tied = rule.parameter == Parameter::head && config.tie_word_embeddings;
      if (!tied) uses.push_back({&rule, 0, 0});
      continue;
    }
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      add_layer_uses(rule, layer, config, uses);
    }
  }
  return uses;
}

}  // namespace troupe
