#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/text/regex.hpp"
#include "runtime/base/result.hpp"

namespace troupe::text {

/// Splits normalised text into words, which merges never cross: the "pre_tokenizer" of a
/// tokenizer.json.
class PreTokenizer {
 public:
  /// Reads null, Split (by a regex or a string), Punctuation, Digits, Metaspace, ByteLevel, or a
  /// Sequence of them. `add_prefix_space` replaces the flag of a ByteLevel that is no part of a
  /// Sequence. Errors: unsupported; corrupt_data if it is larger than text_limits.hpp allows. May
  /// throw nlohmann::json::exception on values of other types.
  static Result<PreTokenizer> parse(const nlohmann::json& pre_tokenizer,
                                    std::optional<bool> add_prefix_space = {});

  /// Calls `on_word` for the words of `text`, from left to right, never with an empty one; a word
  /// is valid during the call only. `is_first`: no text and no token is before it. Errors:
  /// resource_exhausted.
  Result<> split(std::string_view text, bool is_first,
                 const std::function<void(std::string_view)>& on_word) const;

  /// True if the model's tokens spell a word's bytes, not its characters.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  /// What happens to matches and to the text between them, named as in the tokenizers library.
  enum class Behavior {
    removed,               // matches are left out
    isolated,              // each match is a word, and so is the text between
    merged_with_previous,  // a match joins the text before it; of adjacent ones the first does
    merged_with_next,      // a match joins the text after it; of adjacent ones the last does
    contiguous,            // adjacent matches are one word
  };

  struct Step {
    std::optional<Regex> regex;  // none: the text stays whole
    Behavior behavior = Behavior::isolated;
    bool inverted = false;           // the text between counts as the matches
    bool adds_prefix_space = false;  // prepended to a text that begins with no space
    std::string space_sign = {};     // Metaspace: replaces spaces; empty: spaces stay
    bool adds_sign_first = false;    // prepended to the first text, if it does not begin with one,
    bool adds_sign_always = false;   // or to each
  };

  Result<> add(const nlohmann::json& pre_tokenizer);
  static Result<Step> read_split(const nlohmann::json& split);
  static Result<Behavior> read_behavior(const std::string& name);
  static Result<Step> read_metaspace(const nlohmann::json& metaspace);
  static Result<> cut(const Step& step, std::string_view text,
                      const std::function<void(std::string_view)>& on_part);
  Result<> split_from(std::size_t step, std::string_view text, bool is_first,
                      const std::function<void(std::string_view)>& on_word) const;
  Result<> apply(std::size_t step, std::string_view text, bool is_first,
                 const std::function<void(std::string_view)>& on_word) const;

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
  std::size_t spelled_from_ = 0;  // the steps from here on follow ByteLevel, if there is one
};

}  // namespace troupe::text
