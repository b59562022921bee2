#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// How tokens become text: the decoder of a tokenizer.json, applied to each token in advance.
class Decoder {
 public:
  enum class Kind {
    byte_level,     ///< the bytes of all tokens joined, ill-formed parts replaced by U+FFFD
    byte_fallback,  ///< runs of <0xHH> tokens are text if well-formed, else one U+FFFD a byte
  };

  /// One decoded token, ready to be joined.
  struct Piece {
    std::string bytes;        // empty for an id without a token
    bool is_byte = false;     // a <0xHH> token under byte_fallback
    bool is_special = false;  // an added token marked special
  };

  /// Reads the "decoder" value of a tokenizer.json: ByteLevel, or a Sequence of Replace (of a
  /// string), ByteFallback, Fuse and Strip in that order. Errors: unsupported; corrupt_data if it
  /// is larger than text_limits.hpp allows. May throw nlohmann::json::exception on values of other
  /// types.
  static Result<Decoder> parse(const nlohmann::json& decoder);

  /// Adds the token spelled `token` under `id` >= 0, growing the table as needed. Errors:
  /// corrupt_data if the decoder's steps make its text larger than largest_grown_text.
  Result<> add_token(std::int32_t id, const std::string& token, bool is_special);

  Kind kind() const { return kind_; }

  /// The most `strip_character`s removed from the beginning of the text.
  std::size_t strip_start() const { return strip_start_; }
  char strip_character() const { return strip_character_; }

  /// Returns the piece of `id`; an empty one for an id outside the vocabulary.
  const Piece& piece(std::int32_t id) const;

  std::size_t size() const { return pieces_.size(); }

 private:
  struct Replacement {
    std::string from, to;
  };

  Kind kind_ = Kind::byte_level;
  bool has_byte_tokens_ = false;
  std::vector<Replacement> replacements_;
  std::size_t strip_start_ = 0;
  char strip_character_ = ' ';
  std::vector<Piece> pieces_;
};

}  // namespace troupe::text
