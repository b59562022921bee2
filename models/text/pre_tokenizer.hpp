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

/// Cuts normalised text into words, which merges never cross: the "pre_tokenizer" of a
/// tokenizer.json.
class PreTokenizer {
 public:
  /// Reads null, Split (by a regex or a string; Isolated or Removed), Digits, Metaspace, ByteLevel,
  /// or a Sequence of them. Errors: unsupported. May throw nlohmann::json::exception on values of
  /// other types.
  static Result<PreTokenizer> parse(const nlohmann::json& pre_tokenizer);

  /// Calls `on_word` for the words of `text`, from left to right, never with an empty one; a word
  /// is valid during the call only. `is_first`: no text and no token is before it. Errors:
  /// resource_exhausted.
  Result<> split(std::string_view text, bool is_first,
                 const std::function<void(std::string_view)>& on_word) const;

  /// True if a word's bytes, not its characters, are what the model's tokens spell.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  struct Step {
    std::optional<Regex> regex;    // none: the text stays whole
    bool removes_matches = false;  // and keeps what is between
    bool removes_between = false;
    bool adds_prefix_space = false;  // to a text that begins with none
    std::string space_sign = {};     // Metaspace: what spaces become; empty: they stay
    bool adds_sign_first = false;    // to the first text, if it begins with none,
    bool adds_sign_always = false;   // or to each
  };

  Result<> add(const nlohmann::json& pre_tokenizer, int depth);
  static Result<Step> read_metaspace(const nlohmann::json& metaspace);
  Result<> split_from(std::size_t step, std::string_view text, bool is_first,
                      const std::function<void(std::string_view)>& on_word) const;

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

}  // namespace troupe::text
