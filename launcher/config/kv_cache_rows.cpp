#include <utility>

#include "launcher/config/schema_rows.hpp"

namespace troupe::schema {
namespace {

/// A number of tokens.
KeySpec tokens(KeySpec spec) {
  spec.type = ValueType::integer;
  spec.maximum = 1 << 24;
  return spec;
}

EffectiveWith with(std::vector<std::string_view> policies) {
  return {"kv_cache.policy", std::move(policies)};
}

}  // namespace

std::vector<KeySpec> kv_cache_rows() {
  using K = C::KvCache;
  return {
      row<&C::kv_cache, &K::dtype>(
          {.key = "kv_cache.dtype",
           .type = ValueType::text,
           .default_value = "auto",
           .doc = "how keys and values are stored; 8 bits hold twice the tokens of bfloat16",
           .reference =
               "How keys and values are stored. `auto`: in the model's dtype. `int8` and "
               "`fp8_e4m3`: in 8 bits, with an fp16 scale for each token and KV head, so that the "
               "same memory holds almost twice the tokens of bfloat16; that [changes "
               "answers](operations.md#a-smaller-kv-cache) a little, `int8` less than `fp8_e4m3`. "
               "`int4` (not for latent attention): in 4 bits with such scales, almost "
               "four times the tokens, and a greater change, of which `residual` takes back the "
               "most. Its codes stand for 16 numbers that lie closer near zero, times the scale of "
               "the least squared error among a few. Scales of 8 bits are those of each row's "
               "largest number, unless the checkpoint has fixed ones for these codes "
               "(`kv_cache_scheme` of compressed-tensors with `k_scale` and `v_scale`, "
               "ModelOpt's). "
               "Latent attention has one scale for the latent vector and one for the rotated key; "
               "index keys of sparse attention stay in the model's dtype. GPUs refuse it for "
               "latent "
               "attention, heads of more than 256 numbers and policies other than `full`.",
           .choices = {"auto", "fp8_e4m3", "int8", "int4"}}),
      row<&C::kv_cache, &K::residual>(
          {.key = "kv_cache.residual",
           .type = ValueType::text,
           .default_value = "none",
           .doc = "of int4: of what the rounding error is kept in 4 more bits",
           .reference =
               "Of `int4`: of what the cache also holds the rounding error, in 4 more bits a "
               "number. `keys`: of keys alone, which need it more than values; 6 bits a number on "
               "average. `all`: of keys and values. A number and its residual are stored together "
               "as one code of 8 bits.",
           .choices = {"none", "keys", "all"},
           .effective_with = {"kv_cache.dtype", {"int4"}}}),
      row<&C::kv_cache, &K::residual_layers>(
          {.key = "kv_cache.residual_layers",
           .type = ValueType::text_list,
           .default_value = "auto",
           .doc = "of int4: the layers that have residuals, as 0 or 4-7; auto: all",
           .reference =
               "The layers that have the `residual`: numbers from 0, or ranges such as `4-7`. "
               "`auto`: all. Not with context ranks, nor for models some of whose layers have "
               "windows.",
           .allows_auto = true,
           .effective_with = {"kv_cache.residual", {"keys", "all"}}}),
      row<&C::kv_cache, &K::policy>(
          {.key = "kv_cache.policy",
           .type = ValueType::text,
           .default_value = "full",
           .doc = "which tokens' keys and values the cache keeps; all but full change answers",
           .reference =
               "Which tokens' keys and values the cache keeps. `full`: all. The others save memory "
               "and time and [change answers](operations.md#a-smaller-kv-cache). `streaming`: the "
               "first `sink_tokens` and the last `window_tokens`, so that an answer of any length "
               "takes constant memory (Xiao et al. 2023, StreamingLLM); `engine.max_model_len` may "
               "be more than the model was made for. `snapkv`: `prompt_tokens` of a prompt, chosen "
               "by the attention of its last ones, and all of the answer (Li et al. 2024). `h2o`: "
               "once the prompt is read, `heavy_tokens` that have received the most attention so "
               "far and the last `window_tokens` (Zhang et al. 2023). With each of them "
               "`engine.enable_prefix_caching` must be false. Not with guessed tokens "
               "(`engine.speculative_method`), `engine.swap_space`, context ranks, nor for models "
               "with windows; `snapkv` and `h2o` not for latent attention, nor for attention with "
               "learned sinks, whose weights are not summed. The numbers below are refused with a "
               "policy that does not use them. What a "
               "row sees depends on its position alone, so answers are the same bytes in every "
               "arrangement, as ever.",
           .choices = {"full", "streaming", "snapkv", "h2o"}}),
      row<&C::kv_cache, &K::sink_tokens>(tokens(
          {.key = "kv_cache.sink_tokens",
           .type = ValueType::integer,
           .default_value = "4",
           .doc = "of streaming: the first tokens, which are kept",
           .reference = "Of `streaming`: the first tokens of a sequence, which are always kept.",
           .minimum = 0,
           .effective_with = with({"streaming"})})),
      row<&C::kv_cache, &K::window_tokens>(tokens(
          {.key = "kv_cache.window_tokens",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "the last tokens, which are kept; auto: 1020 (streaming), 512 (h2o), 32 (snapkv)",
           .reference =
               "The last tokens, which are kept; in `snapkv` those of the prompt, by whose "
               "attention the others are chosen (its observation window). `auto`: 1020 in "
               "`streaming`, 512 in `h2o`, 32 in `snapkv`. In `streaming`, with "
               "`sink_tokens`, at most what the model was made for.",
           .allows_auto = true,
           .minimum = 1,
           .effective_with = with({"streaming", "snapkv", "h2o"})})),
      row<&C::kv_cache, &K::heavy_tokens>(
          tokens({.key = "kv_cache.heavy_tokens",
                  .type = ValueType::integer,
                  .default_value = "512",
                  .doc = "of h2o: the most tokens that are kept for the attention they received",
                  .reference = "Of `h2o`: the most tokens that are kept because of the attention "
                               "that they have received.",
                  .minimum = 1,
                  .effective_with = with({"h2o"})})),
      row<&C::kv_cache, &K::prompt_tokens>(
          tokens({.key = "kv_cache.prompt_tokens",
                  .type = ValueType::integer,
                  .default_value = "1024",
                  .doc = "of snapkv: the most tokens that are kept of a prompt",
                  .reference = "Of `snapkv`: the most tokens that are kept of a prompt, the last "
                               "`window_tokens` included.",
                  .minimum = 1,
                  .effective_with = with({"snapkv"})})),
      row<&C::kv_cache, &K::pooling_tokens>(tokens(
          {.key = "kv_cache.pooling_tokens",
           .type = ValueType::integer,
           .default_value = "5",
           .doc = "of snapkv: over how many neighbours attention is averaged",
           .reference = "Of `snapkv`: over how many neighbouring tokens attention is averaged "
                        "before tokens are chosen, so that what is kept is kept with its "
                        "surroundings. An odd number.",
           .minimum = 1,
           .effective_with = with({"snapkv"})})),
      row<&C::kv_cache, &K::drop_tokens>(tokens(
          {.key = "kv_cache.drop_tokens",
           .type = ValueType::integer,
           .default_value = "auto",
           .doc = "how many tokens are dropped when a cache is full; auto: an eighth",
           .reference =
               "Of `streaming` and `h2o`: how many tokens are dropped together when a sequence's "
               "cache is full, so that between two drops there are that many fewer at the least. "
               "In `streaming` a step has at most so many tokens of a longer prompt. `auto`: an "
               "eighth of `window_tokens` (`streaming`) or `heavy_tokens` (`h2o`).",
           .allows_auto = true,
           .minimum = 1,
           .effective_with = with({"streaming", "h2o"})})),
  };
}

}  // namespace troupe::schema
