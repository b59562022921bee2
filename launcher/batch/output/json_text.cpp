#include "launcher/batch/output/json_text.hpp"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace troupe {
namespace {

/// The length of the UTF-8 sequence at the beginning of `text`, 0 if it is not valid (RFC 3629,
/// the table of section 4).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0U : 0x80U;
    const unsigned high = first == 0xED ? 0x9FU : 0xBFU;
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90U : 0x80U;
    const unsigned high = first == 0xF4 ? 0x8FU : 0xBFU;
    return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, unsigned char byte) {
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) {
        append_escaped(out, byte);
      } else {
        out += text[i];
      }
      ++i;
      continue;
    }
    const std::size_t length = sequence_length(text.substr(i));
    const std::string_view sequence = text.substr(i, length == 0 ? 1 : length);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (sequence == "\xE2\x80\xA8") {
      out += "\\u2028";
    } else if (sequence == "\xE2\x80\xA9") {
      out += "\\u2029";
    } else {
      out += sequence;
    }
    i += sequence.size();
  }
  out += '"';
}

void append_json_logprob(std::string& out, float logprob) {
  constexpr float floor = -9999.0F;
  const float value = std::isnan(logprob) || logprob < floor ? floor : logprob;
  if (std::isinf(value)) {
    out += "9999.0";
    return;
  }
  std::string text = fmt::format("{}", value == 0.0F ? 0.0F : value);  // never "-0"
  if (text.find_first_of(".e") == text.npos) text += ".0";
  out += text;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t length = sequence_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

}  // namespace troupe
