#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// An added token as tokenizer.json and tokenizer_config.json describe it.
struct AddedTokenEntry {
  std::string content;
  bool single_word = false;  ///< matches only if no word character is adjacent
  bool lstrip = false;       ///< takes the spaces before it
  bool rstrip = false;       ///< takes the spaces after it
  bool normalized = false;   ///< searched in normalised text
  bool special = false;
};

/// Reads an entry; throws nlohmann::json::exception on values of other types.
AddedTokenEntry parse_added_token(const nlohmann::json& entry, bool normalized_by_default);

/// The changes to tokenizer.json by the tokenizer class that a checkpoint names in its
/// tokenizer_config.json, as in transformers 4.57: LlamaTokenizerFast and its kin put BOS and EOS
/// around a text as add_bos_token and add_eos_token say, whatever post-processor tokenizer.json
/// has; other classes ignore both keys. special_tokens_map.json and the class's own defaults are
/// read where transformers reads them.
struct TokenizerConfig {
  /// Special tokens by their role ("bos_token", "eos_token", ...), in the order in which the
  /// tokenizer adds those that it does not have yet; "" stands for the role of
  /// additional_special_tokens.
  struct SpecialToken {
    std::string role;
    AddedTokenEntry token;
  };
  std::vector<SpecialToken> special_tokens;
  std::vector<AddedTokenEntry> added_tokens;  ///< added_tokens_decoder, in the order of its ids

  /// Replaces the post-processor: BOS before and EOS after the text, each if set.
  struct Frame {
    bool bos = false;
    bool eos = false;
  };
  std::optional<Frame> frame;

  /// Replaces the flag of a pre-tokenizer that is a ByteLevel alone.
  std::optional<bool> add_prefix_space;

  /// "normalizer", "pre_tokenizer" and "decoder" that replace those of tokenizer.json; null: none.
  /// With add_prefix_space the Llama class is converted from tokenizer.model, whose vocabulary is
  /// that of tokenizer.json.
  nlohmann::json components;

  nlohmann::json chat_template;  ///< null if there is none

  /// Reads `folder`'s tokenizer_config.json, if there is one, special_tokens_map.json and, where no
  /// tokenizer_class is given, config.json. A folder without the first and the last changes nothing
  /// about tokenizer.json. Errors: corrupt_data, which names the file and key.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);

  /// The spelling of the special token `role`; none if there is no such token.
  std::optional<std::string> special_token(std::string_view role) const;
};

}  // namespace troupe::text
