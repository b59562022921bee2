#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::text {

/// Finds added tokens (e.g. "<|im_end|>") in text, as the tokenizers library does: the leftmost
/// match first, and of those the longest.
class AddedTokens {
 public:
  struct Token {
    std::string content;  // the searched spelling; an empty one is never found
    std::int32_t id = 0;
    bool single_word = false;  // matches only if no word character is adjacent
    bool takes_left_spaces = false;
    bool takes_right_spaces = false;
  };

  void add(Token token);

  /// Calls `on_part(part, id)` for the tokens in `text`, which is well-formed UTF-8, and (with no
  /// id) for the text between them, from left to right; never with an empty part.
  void split(std::string_view text,
             const std::function<void(std::string_view part, std::optional<std::int32_t> id)>&
                 on_part) const;

 private:
  struct Node {
    std::map<char, std::size_t> children;
    std::optional<std::size_t> token;
  };

  /// The longest token that begins at the beginning of `text`.
  const Token* longest_at_start(std::string_view text) const;

  std::vector<Token> tokens_;
  std::vector<Node> nodes_ = {Node{}};  // a trie over bytes, its root first
};

}  // namespace troupe::text
