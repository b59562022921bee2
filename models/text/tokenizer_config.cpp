#include "models/text/tokenizer_config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "models/json/json_file.hpp"

namespace troupe::text {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 7> roles = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// A tokenizer class of transformers 4.57, by its name without "Fast".
struct TokenizerClass {
  std::string_view name;
  std::array<std::string_view, roles.size()> defaults;  ///< of the special tokens; empty: none
  bool replaces_frame = false;
  bool adds_bos = false;      ///< if add_bos_token is absent
  bool is_converted = false;  ///< from tokenizer.model if add_prefix_space is given
};

constexpr TokenizerClass tokenizer_classes[] = {
    {"LlamaTokenizer", {"<s>", "</s>", "<unk>"}, true, true, true},
    {"CodeLlamaTokenizer", {"<s>", "</s>", "<unk>"}, true, true},
    {"GemmaTokenizer", {"<bos>", "<eos>", "<unk>", "", "<pad>"}, true, true},
    {"CohereTokenizer", {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>"}, true, true},
    {"GPTNeoXTokenizer", {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"}, true, false},
    {"GPT2Tokenizer", {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"}},
    {"Qwen2Tokenizer", {"", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>"}},
};
constexpr TokenizerClass plain_class = {"PreTrainedTokenizer", {}};

/// The classes of model types whose checkpoints may leave tokenizer_class out.
constexpr std::pair<std::string_view, std::string_view> classes_of_models[] = {
    {"llama", "LlamaTokenizer"},       {"mistral", "LlamaTokenizer"},
    {"mixtral", "LlamaTokenizer"},     {"deepseek_v2", "LlamaTokenizer"},
    {"deepseek_v3", "LlamaTokenizer"}, {"qwen2", "Qwen2Tokenizer"},
    {"qwen2_moe", "Qwen2Tokenizer"},   {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"},
};

/// Reads the object in `path`; none if there is no such file.
Result<std::optional<json>> read_if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<json>();
  TROUPE_TRY(json object, read_json_object(path));
  return std::optional(std::move(object));
}

std::string text_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<TokenizerClass> class_of(const json& config, const std::filesystem::path& folder) {
  std::string name = text_or_empty(config, "tokenizer_class");
  if (name.empty()) {
    TROUPE_TRY(const auto model, read_if_there(folder / "config.json"));
    if (model) {
      name = text_or_empty(*model, "tokenizer_class");
      const std::string type = text_or_empty(*model, "model_type");
      const auto* found = std::ranges::find(classes_of_models, type,
                                            &std::pair<std::string_view, std::string_view>::first);
      if (name.empty() && found != std::end(classes_of_models)) name = found->second;
    }
  }
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto* found = std::ranges::find(tokenizer_classes, name, &TokenizerClass::name);
  return found != std::end(tokenizer_classes) ? *found : plain_class;
}

/// Reads a flag that may be null, which is false as in Python.
Result<std::optional<bool>> read_flag(const json& config, const char* key,
                                      const std::string& where) {
  const auto found = config.find(key);
  if (found == config.end()) return std::optional<bool>();
  if (!found->is_boolean() && !found->is_null()) {
    return fail(ErrorCode::corrupt_data, "{}: {} is neither true, false nor null", where, key);
  }
  return std::optional(found->is_boolean() && found->get<bool>());
}

/// Reads a special token: a text, or an object like those of added_tokens_decoder.
std::optional<AddedTokenEntry> special_entry(const json& value) {
  AddedTokenEntry entry;
  if (value.is_object() && value.contains("content")) {
    entry = parse_added_token(value, true);
  } else if (value.is_string()) {
    entry.content = value.get<std::string>();
  } else {
    return std::nullopt;
  }
  entry.special = true;
  return entry;
}

void read_special_tokens(const json& config, const TokenizerClass& tokenizer_class,
                         std::vector<TokenizerConfig::SpecialToken>& tokens) {
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const auto found = config.find(roles[i]);
    const json value = found != config.end() ? *found : json(tokenizer_class.defaults[i]);
    auto entry = special_entry(value);
    if (entry && !entry->content.empty()) tokens.push_back({std::string(roles[i]), *entry});
  }
  const auto additional = config.find("additional_special_tokens");
  if (additional == config.end() || !additional->is_array()) return;
  for (const json& value : *additional) {
    if (auto entry = special_entry(value)) tokens.push_back({"", *entry});
  }
}

void read_added_tokens(const json& decoder, std::vector<AddedTokenEntry>& tokens) {
  std::map<std::int64_t, AddedTokenEntry> by_id;
  for (const auto& [key, value] : decoder.items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size()) continue;
    AddedTokenEntry entry = parse_added_token(value, true);
    if (entry.special && !value.contains("normalized")) entry.normalized = false;
    by_id.insert_or_assign(id, std::move(entry));
  }
  for (auto& [id, entry] : by_id) tokens.push_back(std::move(entry));
}

/// The components that transformers' LlamaConverter makes for SentencePiece's conventions.
json converted_components(bool is_legacy, bool adds_prefix) {
  constexpr const char* sign = "\u2581";
  json components;
  if (is_legacy) {
    components["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
    json& steps = components["normalizer"]["normalizers"];
    if (adds_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", sign}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", sign}});
    components["pre_tokenizer"] = nullptr;
  } else {
    components["normalizer"] = nullptr;
    components["pre_tokenizer"] = {{"type", "Metaspace"},
                                   {"replacement", sign},
                                   {"prepend_scheme", adds_prefix ? "first" : "never"},
                                   {"split", false}};
  }
  json& decoders = components["decoder"]["decoders"];
  components["decoder"]["type"] = "Sequence";
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", sign}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (adds_prefix)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return components;
}

/// Applies the class's handling of add_prefix_space.
Result<void> read_prefix_space(const json& config, const TokenizerClass& tokenizer_class,
                               const std::filesystem::path& folder, const std::string& where,
                               TokenizerConfig& out) {
  const auto found = config.find("add_prefix_space");
  if (found == config.end()) {
    if (!tokenizer_class.is_converted) out.add_prefix_space = false;
    return {};
  }
  if (found->is_null()) return {};
  TROUPE_TRY(const auto adds_prefix, read_flag(config, "add_prefix_space", where));
  std::error_code ignored;
  if (!tokenizer_class.is_converted) {
    out.add_prefix_space = adds_prefix;
  } else if (std::filesystem::exists(folder / "tokenizer.model", ignored)) {
    TROUPE_TRY(const auto legacy, read_flag(config, "legacy", where));
    const auto stated = config.find("legacy");
    const bool is_legacy = stated == config.end() || stated->is_null() || *legacy;
    out.components = converted_components(is_legacy, *adds_prefix);
  }
  return {};
}

Result<TokenizerConfig> read_config(json config, const std::filesystem::path& folder,
                                    const std::string& where) {
  TokenizerConfig out;
  TROUPE_TRY(const TokenizerClass tokenizer_class, class_of(config, folder));
  if (config.contains("added_tokens_decoder")) {
    read_added_tokens(config["added_tokens_decoder"], out.added_tokens);
  } else {
    // Files older than added_tokens_decoder keep their special tokens separately.
    TROUPE_TRY(const auto map, read_if_there(folder / "special_tokens_map.json"));
    if (map) config.update(*map);
  }
  read_special_tokens(config, tokenizer_class, out.special_tokens);
  if (tokenizer_class.replaces_frame) {
    TROUPE_TRY(const auto bos, read_flag(config, "add_bos_token", where));
    TROUPE_TRY(const auto eos, read_flag(config, "add_eos_token", where));
    out.frame = {bos.value_or(tokenizer_class.adds_bos), eos.value_or(false)};
  }
  TROUPE_CHECK(read_prefix_space(config, tokenizer_class, folder, where, out));
  if (const auto found = config.find("chat_template"); found != config.end()) {
    out.chat_template = std::move(*found);
  }
  return out;
}

}  // namespace

AddedTokenEntry parse_added_token(const json& entry, bool normalized_by_default) {
  AddedTokenEntry token;
  token.content = entry.at("content").get<std::string>();
  token.single_word = entry.value("single_word", false);
  token.lstrip = entry.value("lstrip", false);
  token.rstrip = entry.value("rstrip", false);
  token.normalized = entry.value("normalized", normalized_by_default);
  token.special = entry.value("special", false);
  return token;
}

Result<TokenizerConfig> TokenizerConfig::load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  TROUPE_TRY(std::optional<json> config, read_if_there(path));
  std::error_code ignored;
  if (!config && !std::filesystem::exists(folder / "config.json", ignored))
    return TokenizerConfig{};
  try {
    return read_config(config ? *std::move(config) : json::object(), folder, path.string());
  } catch (const json::exception& error) {
    return fail(ErrorCode::corrupt_data, "{}: {}", path.string(), error.what());
  }
}

std::optional<std::string> TokenizerConfig::special_token(std::string_view role) const {
  const auto found = std::ranges::find(special_tokens, role, &SpecialToken::role);
  if (found == special_tokens.end()) return std::nullopt;
  return found->token.content;
}

}  // namespace troupe::text
