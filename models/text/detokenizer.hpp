#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/text/decoder.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// Converts ids that arrive one by one into text that is returned piece by piece.
///
/// The pieces of all push() calls and of flush(), joined, equal the tokenizer's decode() of all
/// ids, or what they add to decode() of the ids before them. A piece is final and well-formed
/// UTF-8: a character is held back until its last byte is there. A byte-fallback tokenizer decides
/// on a run of byte tokens as a whole, so text from such tokens is held back until the run ends.
/// Not thread-safe; a copy continues on its own.
class Detokenizer {
 public:
  /// `tokenizer` must outlive this object; it may be moved meanwhile. The text follows that of
  /// `before`, e.g. of a prompt, which is not returned again: a space that is stripped only at the
  /// beginning of a text stays, and a character whose first bytes are in `before` is completed.
  /// Only the end of `before` is read.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::span<const std::int32_t> before = {});

  /// Takes one more id; returns the text that is final now, often "".
  std::string push(std::int32_t id);

  /// Ends the text: returns what was held back. The object is then as new, with an empty `before`.
  std::string flush();

  /// Returns where the first byte of each of `ids` is in the text that they produce if they come
  /// next and then end the text: a position in code points from here. Tokens that share a character
  /// have its position, and a token that produces no text has the position of the next one.
  std::vector<std::int32_t> places_of(std::span<const std::int32_t> ids) const;

 private:
  bool is_hidden(const text::Decoder::Piece& piece) const;
  void follow(std::span<const std::int32_t> before);
  /// Removes from `out`, which comes next in the text, the characters still to be stripped.
  void strip_beginning(std::string& out);

  const text::Decoder* decoder_;
  bool skip_special_tokens_;
  std::string pending_;           // bytes not yet final
  std::size_t leading_to_strip_;  // characters that may still be stripped from the beginning
};

}  // namespace troupe
