#include "launcher/batch/json_text.hpp"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

// U+2028 and U+2029.
constexpr std::string_view line_separator = "\xE2\x80\xA8";
constexpr std::string_view paragraph_separator = "\xE2\x80\xA9";

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
  std::string mended;
  if (!text::is_valid_utf8(text)) {
    text::append_lossy(text, true, mended);
    text = mended;
  }
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) {
      append_escaped(out, byte);
    } else if (byte == 0xE2 &&
               (text.substr(i, 3) == line_separator || text.substr(i, 3) == paragraph_separator)) {
      out += text[i + 2] == line_separator[2] ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += text[i];
    }
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

}  // namespace troupe
