#include "launcher/job/plan_kv_policy.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/layers/attention/stage_caches.hpp"

namespace troupe {
namespace {

using Kind = KvPolicy::Kind;

Kind kind_of(std::string_view name) {
  for (const Kind kind : {Kind::streaming, Kind::snapkv, Kind::h2o}) {
    if (to_string(kind) == name) return kind;
  }
  return Kind::full;
}

std::int64_t an_eighth(std::int64_t tokens) { return std::max<std::int64_t>(tokens / 8, 1); }

/// The numbers of the configuration, which are positive and at most 2^24.
KvPolicy numbers_of(const Config::KvCache& keys, Kind kind) {
  const auto number = [](std::int64_t tokens) { return static_cast<std::int32_t>(tokens); };
  switch (kind) {
    case Kind::full:
      break;
    case Kind::streaming: {
      const std::int64_t window = keys.window_tokens.value_or(1020);
      return {.kind = kind,
              .capacity = number(keys.sink_tokens + window),
              .first_tokens = number(keys.sink_tokens),
              .drop_tokens = number(keys.drop_tokens.value_or(an_eighth(window)))};
    }
    case Kind::snapkv:
      return {.kind = kind,
              .capacity = number(keys.prompt_tokens),
              .last_tokens = number(keys.window_tokens.value_or(32)),
              .pooling_tokens = number(keys.pooling_tokens)};
    case Kind::h2o: {
      const std::int64_t window = keys.window_tokens.value_or(512);
      return {.kind = kind,
              .capacity = number(keys.heavy_tokens + window),
              .last_tokens = number(window),
              .drop_tokens = number(keys.drop_tokens.value_or(an_eighth(keys.heavy_tokens)))};
    }
  }
  return {};
}

/// Checks the numbers against each other and against the model.
Result<void> check_numbers(const KvPolicy& policy, const Config::KvCache& keys,
                           const ModelConfig& model) {
  constexpr auto invalid = ErrorCode::invalid_argument;
  switch (policy.kind) {
    case Kind::full:
      break;
    case Kind::streaming: {
      const std::int32_t window = policy.capacity - policy.first_tokens;
      if (policy.drop_tokens >= window) {
        return fail(invalid,
                    "kv_cache.drop_tokens is {}: it must be less than kv_cache.window_tokens ({}), "
                    "of which "
                    "they are",
                    policy.drop_tokens, window);
      }
      if (policy.capacity > model.max_position_embeddings) {
        return fail(
            invalid,
            "kv_cache.sink_tokens and window_tokens are {} together, but the model was made for {} "
            "positions: lower kv_cache.window_tokens",
            policy.capacity, model.max_position_embeddings);
      }
      break;
    }
    case Kind::snapkv:
      if (policy.last_tokens >= policy.capacity) {
        return fail(
            invalid,
            "kv_cache.window_tokens is {}: it must be less than kv_cache.prompt_tokens ({}), of "
            "which they are",
            policy.last_tokens, policy.capacity);
      }
      if (policy.pooling_tokens % 2 == 0) {
        return fail(invalid,
                    "kv_cache.pooling_tokens is {}: it must be odd, the token in the middle",
                    policy.pooling_tokens);
      }
      break;
    case Kind::h2o:
      if (policy.drop_tokens > keys.heavy_tokens) {
        return fail(
            invalid,
            "kv_cache.drop_tokens is {}: it must be at most kv_cache.heavy_tokens ({}), of which "
            "they are",
            policy.drop_tokens, keys.heavy_tokens);
      }
      break;
  }
  return {};
}

/// Refuses models whose cache cannot lose tokens in this way.
Result<void> check_model(const KvPolicy& policy, const ModelConfig& model) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::unsupported, "kv_cache.policy {}: {}; leave it at full for this model",
                to_string(policy.kind), why);
  };
  if (std::ranges::any_of(model.windows, [](std::int64_t window) { return window > 0; })) {
    return refuse("layers of this model have windows, whose caches lose tokens by themselves");
  }
  if (policy.rotates_by_entry() && std::holds_alternative<DynamicRopeScaling>(model.rope.scaling)) {
    return refuse(
        "keys cannot be moved to other positions where the rope's base grows with them (rope_type "
        "dynamic)");
  }
  if (model.latent && model.latent->index_top_k > 0) {
    return refuse("this model chooses the keys that a row attends to by itself");
  }
  if (policy.observes_attention() && model.latent) {
    return refuse("attention over latent vectors is not observed in this version");
  }
  if (policy.observes_attention() && model.attention_sinks) {
    return refuse("attention with learned sinks is not observed in this version");
  }
  return {};
}

/// Refuses settings that need every token, or a cache that nobody changes.
Result<void> check_settings(const KvPolicy& policy, const Config& config, const ModelConfig& model,
                            const EngineSpec& engine) {
  const auto refuse = [&](std::string_view key, std::string_view why, std::string_view remedy) {
    return fail(ErrorCode::invalid_argument, "kv_cache.policy is {}, and {}: {}. {}",
                to_string(policy.kind), key, why, remedy);
  };
  if (config.engine.enable_prefix_caching) {
    return refuse(
        "engine.enable_prefix_caching is true",
        "a block that others share cannot lose tokens, and its hash stands for all before",
        "Set engine.enable_prefix_caching: false");
  }
  if (config.engine.speculative_method != "none") {
    return refuse("engine.speculative_method is " + config.engine.speculative_method,
                  "tokens that were dropped for a guess do not come back if the guess is wrong",
                  "Set engine.speculative_method: none");
  }
  if (config.engine.swap_space.value_or(0) > 0) {
    return refuse("engine.swap_space is above 0",
                  "what host memory has of a request does not follow its drops",
                  "Set engine.swap_space: 0; requests are then computed anew");
  }
  if (engine.device == DeviceKind::cuda && engine.kv_codes) {
    return refuse(fmt::format("kv_cache.dtype is {} on GPUs", to_string(*engine.kv_codes)),
                  "GPUs have no kernels yet that move codes within a cache",
                  "Set kv_cache.dtype: auto");
  }
  if (engine.context_parallel_size > 1) {
    return refuse("parallel.context_parallel_size is above 1",
                  "a rank does not have all rows and keys of a sequence, of which some are to stay",
                  "Set parallel.context_parallel_size: 1");
  }
  if (policy.observes_attention() && engine.tensor_parallel_size > model.kv_heads) {
    return refuse("parallel.tensor_parallel_size is above the model's KV heads",
                  "ranks that share a KV head each see the attention of their own heads to it",
                  fmt::format("Set parallel.tensor_parallel_size: {} or less", model.kv_heads));
  }
  if (policy.kind == Kind::streaming && !config.engine.enable_chunked_prefill) {
    return refuse("engine.enable_chunked_prefill is false",
                  "a prompt longer than the window is read over several steps",
                  "Set engine.enable_chunked_prefill: true");
  }
  return {};
}

/// The layers of "3" or "4-7".
std::optional<std::pair<std::int32_t, std::int32_t>> layers_of(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::int32_t> {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  const std::size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
  return std::pair(*first, *last);
}

}  // namespace

Result<KvResiduals> plan_kv_residuals(const Config& config, const ModelConfig& model,
                                      const EngineSpec& engine) {
  KvResiduals residuals;
  if (engine.kv_codes != DType::i4x2) return residuals;
  if (config.kv_cache.residual == "keys") residuals.kind = KvResidual::keys;
  if (config.kv_cache.residual == "all") residuals.kind = KvResidual::all;
  if (!config.kv_cache.residual_layers) return residuals;
  for (const std::string& text : *config.kv_cache.residual_layers) {
    const auto layers = layers_of(text);
    if (!layers || layers->second >= model.layers) {
      return fail(ErrorCode::invalid_argument,
                  "kv_cache.residual_layers: expected layers from 0 to {}, such as 0 or 2-3, found "
                  "{}",
                  model.layers - 1, text);
    }
    for (std::int32_t layer = layers->first; layer <= layers->second; ++layer) {
      residuals.layers.push_back(layer);
    }
  }
  if (residuals.layers.empty()) residuals.kind = KvResidual::none;
  if (engine.context_parallel_size > 1) {
    return fail(ErrorCode::invalid_argument,
                "kv_cache.residual_layers, and parallel.context_parallel_size is above 1: context "
                "ranks exchange rows of one size. Leave kv_cache.residual_layers at auto");
  }
  if (cache_groups(model).size() > 1) {
    return fail(ErrorCode::unsupported,
                "kv_cache.residual_layers: layers of this model take turns in one block, as some "
                "have windows; leave it at auto");
  }
  return residuals;
}

Result<std::string> describe_kv_codes(const EngineSpec& engine, const ModelConfig& model) {
  TROUPE_TRY(AttentionShape shape, attention_shape(model, 0, {0, 1}));
  shape.index = {};
  const Slice layers{0, model.layers};
  const auto tensors = cache_residuals(stage_caches(model, layers), 0, engine.kv_residuals);
  const auto bytes = static_cast<double>(
      kv_bytes_per_token(shape, tensors, *engine.kv_codes, *engine.kv_codes, KvPolicy()));
  const double numbers =
      static_cast<double>(shape.cached_elements()) * static_cast<double>(tensors.size());
  std::string text(to_string(*engine.kv_codes));
  if (engine.kv_residuals.kind != KvResidual::none) {
    text += engine.kv_residuals.kind == KvResidual::keys ? " with residuals of keys"
                                                         : " with residuals";
    if (!engine.kv_residuals.layers.empty()) {
      text += fmt::format(" in {} of {} layers", engine.kv_residuals.layers.size(), model.layers);
    }
  }
  return text +
         fmt::format(", {:.0f} bytes a token, {:.2f} bits a number", bytes, 8.0 * bytes / numbers);
}

Result<KvPolicy> plan_kv_policy(const Config& config, const ModelConfig& model,
                                const EngineSpec& engine) {
  const KvPolicy policy = numbers_of(config.kv_cache, kind_of(config.kv_cache.policy));
  if (policy.is_full()) return policy;
  TROUPE_CHECK(check_numbers(policy, config.kv_cache, model));
  TROUPE_CHECK(check_model(policy, model));
  TROUPE_CHECK(check_settings(policy, config, model, engine));
  return policy;
}

}  // namespace troupe
