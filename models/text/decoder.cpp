#include "models/text/decoder.hpp"

#include <charconv>

#include <nlohmann/json.hpp>

#include "models/text/byte_alphabet.hpp"
#include "models/text/string_replace.hpp"
#include "models/text/text_limits.hpp"

namespace troupe::text {
namespace {

/// The byte that a token of the form <0xHH> stands for, or -1.
int byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc{} && end == token.data() + 5 ? byte : -1;
}

}  // namespace

Result<Decoder> Decoder::parse(const nlohmann::json& decoder) {
  Decoder out;
  if (decoder.is_null()) return fail(ErrorCode::unsupported, "a tokenizer without a decoder");
  const auto type = decoder.at("type").get<std::string>();
  if (type == "ByteLevel") return out;
  if (type != "Sequence") return fail(ErrorCode::unsupported, "decoder {}", type);

  // The steps are combined into one per-token rule, which is equivalent only in the usual order.
  out.kind_ = Kind::byte_fallback;
  int stage = 0;
  for (const auto& step : decoder.at("decoders")) {
    const auto name = step.at("type").get<std::string>();
    const int order = name == "Replace"        ? 0
                      : name == "ByteFallback" ? 1
                      : name == "Fuse"         ? 2
                      : name == "Strip"        ? 3
                                               : -1;
    if (order < stage || (order == 3 && stage != 2))
      return fail(ErrorCode::unsupported, "decoder {} at this place of a Sequence", name);
    stage = order;
    if (name == "Replace") {
      const auto& pattern = step.at("pattern");
      if (!pattern.contains("String"))
        return fail(ErrorCode::unsupported, "decoder Replace with a pattern that is no string");
      TROUPE_TRY(auto to, read_short_text(step, "content"));
      out.replacements_.push_back({pattern.at("String").get<std::string>(), std::move(to)});
      TROUPE_CHECK(check_steps(out.replacements_.size(), "decoder"));
    } else if (name == "ByteFallback") {
      out.has_byte_tokens_ = true;
    } else if (name == "Strip") {
      const auto content = step.at("content").get<std::string>();
      if (content.size() != 1 || step.at("stop").get<int>() != 0)
        return fail(ErrorCode::unsupported, "decoder Strip of '{}' or at the end", content);
      out.strip_character_ = content[0];
      out.strip_start_ = step.at("start").get<std::size_t>();
    }
  }
  return out;
}

Result<> Decoder::add_token(std::int32_t id, const std::string& token, bool is_special) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= pieces_.size()) pieces_.resize(index + 1);
  Piece& piece = pieces_[index];
  piece = {token, false, is_special};
  if (kind_ == Kind::byte_level) {
    if (auto bytes = bytes_of_token(token)) piece.bytes = *std::move(bytes);
    return {};
  }
  for (const Replacement& replacement : replacements_) {
    piece.bytes = replace_all(piece.bytes, replacement.from, replacement.to);
    if (piece.bytes.size() > largest_grown_text(token.size()))
      return fail(ErrorCode::corrupt_data, "decoder makes more than {} bytes of a token of {}",
                  largest_grown_text(token.size()), token.size());
  }
  if (const int byte = has_byte_tokens_ ? byte_of_fallback_token(piece.bytes) : -1; byte >= 0) {
    piece.bytes.assign(1, static_cast<char>(byte));
    piece.is_byte = true;
  }
  return {};
}

const Decoder::Piece& Decoder::piece(std::int32_t id) const {
  static const Piece nothing;
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < pieces_.size() ? pieces_[index] : nothing;
}

}  // namespace troupe::text
