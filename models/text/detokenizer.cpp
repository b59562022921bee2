#include "models/text/detokenizer.hpp"

#include <string_view>
#include <utility>

#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// The text of a whole run of byte tokens, which is all text or all U+FFFD.
std::string text_of_byte_run(const std::string& bytes) {
  if (text::is_valid_utf8(bytes)) return bytes;
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) out += text::replacement_character;
  return out;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const std::int32_t> before)
    : decoder_(&tokenizer.decoder()),
      skip_special_tokens_(skip_special_tokens),
      leading_to_strip_(decoder_->strip_start()) {
  follow(before);
}

bool Detokenizer::is_hidden(const text::Decoder::Piece& piece) const {
  return piece.bytes.empty() || (skip_special_tokens_ && piece.is_special);
}

void Detokenizer::follow(std::span<const std::int32_t> before) {
  constexpr std::size_t longest_character = 4;
  // Nothing before `from` affects later text.
  std::size_t from = before.size(), bytes = 0;
  for (bool is_settled = false; from > 0 && !is_settled;) {
    const text::Decoder::Piece& piece = decoder_->piece(before[--from]);
    if (is_hidden(piece)) continue;
    bytes += piece.bytes.size();
    is_settled = decoder_->kind() == text::Decoder::Kind::byte_level
                     ? bytes >= longest_character
                     : !piece.is_byte && piece.bytes.find_first_not_of(
                                             decoder_->strip_character()) != std::string::npos;
  }
  for (const std::int32_t id : before.subspan(from)) push(id);
  // Held-back bytes that form characters already belong to the earlier text.
  std::string done;
  pending_.erase(0, text::append_lossy(pending_, false, done));
  strip_beginning(done);
}

std::string Detokenizer::push(std::int32_t id) {
  const text::Decoder::Piece& piece = decoder_->piece(id);
  if (is_hidden(piece)) return "";
  std::string out;
  if (decoder_->kind() == text::Decoder::Kind::byte_level) {
    pending_ += piece.bytes;
    pending_.erase(0, text::append_lossy(pending_, false, out));
  } else if (piece.is_byte) {
    pending_ += piece.bytes;
  } else {
    out = text_of_byte_run(pending_) + piece.bytes;
    pending_.clear();
  }
  strip_beginning(out);
  return out;
}

std::string Detokenizer::flush() {
  std::string out;
  if (decoder_->kind() == text::Decoder::Kind::byte_level) {
    text::append_lossy(pending_, true, out);
  } else {
    out = text_of_byte_run(pending_);
  }
  strip_beginning(out);
  pending_.clear();
  leading_to_strip_ = decoder_->strip_start();
  return out;
}

std::vector<std::int32_t> Detokenizer::places_of(std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> places(ids.size());
  const bool is_byte_level = decoder_->kind() == text::Decoder::Kind::byte_level;
  std::string bytes = pending_;                             // bytes whose characters are not
                                                            // counted yet
  std::vector<std::pair<std::size_t, std::size_t>> tokens;  // tokens that begin in them: index and
                                                            // byte
  std::size_t to_strip = leading_to_strip_;
  std::int32_t characters = 0;
  const auto count = [&](bool each_byte) {
    auto token = tokens.begin();
    const auto place_tokens_before = [&](std::size_t end) {
      for (; token != tokens.end() && token->second < end; ++token)
        places[token->first] = characters;
    };
    for (std::size_t at = 0; at < bytes.size();) {
      const std::string_view rest = std::string_view(bytes).substr(at);
      const std::size_t length = each_byte ? 1 : text::first_character_bytes(rest);
      place_tokens_before(at + length);
      if (to_strip > 0 && rest[0] == decoder_->strip_character()) {
        --to_strip;
      } else {
        to_strip = 0;
        ++characters;
      }
      at += length;
    }
    place_tokens_before(bytes.size() + 1);
    bytes.clear();
    tokens.clear();
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const text::Decoder::Piece& piece = decoder_->piece(ids[i]);
    const bool ends_run = !is_byte_level && !piece.is_byte && !is_hidden(piece);
    if (ends_run) count(!text::is_valid_utf8(bytes));
    tokens.emplace_back(i, bytes.size());
    if (!is_hidden(piece)) bytes += piece.bytes;
    if (ends_run) count(false);
  }
  count(!is_byte_level && !text::is_valid_utf8(bytes));
  return places;
}

void Detokenizer::strip_beginning(std::string& out) {
  std::size_t stripped = 0;
  while (leading_to_strip_ > 0 && stripped < out.size()) {
    if (out[stripped] == decoder_->strip_character()) {
      ++stripped;
      --leading_to_strip_;
    } else {
      leading_to_strip_ = 0;
    }
  }
  out.erase(0, stripped);
}

}  // namespace troupe
