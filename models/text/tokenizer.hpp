#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

namespace text {
class Decoder;
}

/// Text to token ids and back, as the Hugging Face tokenizers library does it from the same file.
///
/// Reads tokenizer.json with a BPE model, byte-level (GPT-2, Llama 3, Qwen) or in SentencePiece's
/// manner (Llama 2, Mistral). Components outside this set are refused at load, so that no text is
/// ever tokenised differently than in the model's training. Byte-pair encoding: Sennrich et al.
/// 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2.
///
/// Known difference: Unicode tables are those of PCRE2 and utf8proc (Unicode 13 and 14), so a
/// character assigned later may be split differently.
///
/// Every const method may be called from any thread.
class Tokenizer {
 public:
  /// Reads `path`: a tokenizer.json alone, or a checkpoint's folder with one, whose
  /// tokenizer_config.json then applies too (see text::TokenizerConfig). Errors: not_found;
  /// corrupt_data (not JSON, a merge of unknown tokens, ...); unsupported with the name of the
  /// component.
  static Result<Tokenizer> load(const std::filesystem::path& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Returns the ids of `utf8`; added tokens written in the text become their ids. With
  /// `add_special_tokens` the post-processor's tokens (e.g. BOS) are put around them. Time grows as
  /// n log n at worst. Errors: invalid_argument if `utf8` is not well-formed UTF-8;
  /// resource_exhausted if normalising or splitting it exceeds the limits for a text of its size.
  Result<std::vector<std::int32_t>> encode(std::string_view utf8, bool add_special_tokens) const;

  /// Returns the text of `ids`; bytes that form no character become U+FFFD, ids outside the
  /// vocabulary are skipped. With `skip_special_tokens` special added tokens are left out. With
  /// `before`, returns what `ids` add to its text (see Detokenizer).
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens,
                     std::span<const std::int32_t> before = {}) const;

  /// Returns the bytes that `id` stands for in a text: for a byte token one byte, possibly part of
  /// a character; for a token at the beginning of a word also its space. Empty for an id outside
  /// the vocabulary.
  std::string_view bytes_of(std::int32_t id) const;

  /// The number of tokens that encode() puts before a text with `add_special_tokens`.
  std::size_t tokens_before_text() const;

  /// True if `id` is an added token marked special.
  bool is_special(std::int32_t id) const;

  /// One more than the largest id.
  std::int32_t vocab_size() const;

  /// The id of the token spelled `token` in tokenizer.json.
  std::optional<std::int32_t> id_of(std::string_view token) const;

  /// The id of tokenizer_config.json's eos_token; none without one.
  std::optional<std::int32_t> eos_id() const;

  /// The decoder that `decode` and Detokenizer use; lives as long as this tokenizer, moves
  /// included.
  const text::Decoder& decoder() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace troupe
