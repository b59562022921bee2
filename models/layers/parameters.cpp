#include "models/layers/parameters.hpp"

#include <fmt/format.h>

namespace troupe {

namespace {

void replace_number(std::string& name, std::string_view place, std::int64_t number) {
  const std::size_t at = name.find(place);
  if (at != std::string::npos) name.replace(at, place.size(), fmt::to_string(number));
}

bool is_dense(Parameter parameter) {
  return parameter == Parameter::gate || parameter == Parameter::up || parameter == Parameter::down;
}

void add_layer_uses(const WeightRule& rule, std::int64_t layer, const ModelConfig& config,
                    std::vector<WeightUse>& uses) {
  const bool sparse = config.is_sparse(layer);
  if (is_expert(rule.parameter)) {
    for (std::int64_t expert = 0; sparse && expert < config.moe->experts; ++expert) {
      uses.push_back({&rule, layer, expert});
    }
    return;
  }
  if (is_dense(rule.parameter) && sparse) return;
  if (rule.parameter == Parameter::router && !sparse) return;
  uses.push_back({&rule, layer, 0});
}

}  // namespace

bool is_global(Parameter parameter) {
  return parameter == Parameter::embedding || parameter == Parameter::final_norm ||
         parameter == Parameter::head;
}

bool is_expert(Parameter parameter) {
  return parameter == Parameter::expert_gate || parameter == Parameter::expert_up ||
         parameter == Parameter::expert_down;
}

Shape shape_of(Parameter parameter, const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  const std::int64_t expert_inner = config.moe ? config.moe->intermediate_size : 0;
  switch (parameter) {
    case Parameter::embedding:
    case Parameter::head:
      return {config.vocab_size, hidden};
    case Parameter::attention_norm:
    case Parameter::mlp_norm:
    case Parameter::final_norm:
      return {hidden};
    case Parameter::query:
      return {config.heads * config.head_dim, hidden};
    case Parameter::key:
    case Parameter::value:
      return {config.kv_heads * config.head_dim, hidden};
    case Parameter::query_norm:
    case Parameter::key_norm:
      return {config.head_dim};
    case Parameter::output:
      return {hidden, config.heads * config.head_dim};
    case Parameter::gate:
    case Parameter::up:
      return {inner, hidden};
    case Parameter::down:
      return {hidden, inner};
    case Parameter::router:
      return {config.moe ? config.moe->experts : 0, hidden};
    case Parameter::expert_gate:
    case Parameter::expert_up:
      return {expert_inner, hidden};
    case Parameter::expert_down:
      return {hidden, expert_inner};
  }
  return {};
}

std::string checkpoint_name(const WeightRule& rule, std::int64_t layer, std::int64_t expert) {
  std::string name(rule.name);
  replace_number(name, "{layer}", layer);
  replace_number(name, "{expert}", expert);
  return name;
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
