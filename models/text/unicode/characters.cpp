#include "models/text/unicode/characters.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <utf8proc.h>

#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Decomposes `text`, orders its marks, and composes if the form says so. utf8proc_map would do the
/// same, but its ordering of marks is quadratic in the length of a run of them.
void append_normalized(std::string_view text, NormalForm form, std::string& out) {
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto decompose_options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto code_point = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    utf8proc_int32_t parts[32];  // the longest decomposition has 18 code points
    int boundary = 0;
    const auto count = utf8proc_decompose_char(code_point, parts, 32, decompose_options, &boundary);
    if (count > 0 && count <= 32) {
      points.insert(points.end(), parts, parts + count);
    } else {
      points.push_back(code_point);
    }
  }
  for (auto from = points.begin(); from != points.end();) {
    if (combining_class(*from) == 0) {
      ++from;
      continue;
    }
    const auto to = std::find_if(
        from, points.end(), [](utf8proc_int32_t point) { return combining_class(point) == 0; });
    std::stable_sort(from, to, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    from = to;
  }
  auto length = static_cast<utf8proc_ssize_t>(points.size());
  if (compose) {
    length = utf8proc_normalize_utf32(
        points.data(), length, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_code_point(static_cast<char32_t>(points[static_cast<std::size_t>(i)]), out);
}

/// NFC of runs only: a code point below U+0300 begins a new composition and is its own NFC, so that
/// only runs of higher ones, with the one before, need work.
std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0, previous = 0;
  for (std::size_t at = 0; at < text.size();) {
    // Lead bytes from 0xCC on begin U+0300 and above.
    if (static_cast<unsigned char>(text[at]) < 0xCC) {
      previous = at;
      at += static_cast<unsigned char>(text[at]) < 0x80 ? 1 : 2;
      continue;
    }
    const std::size_t from = std::max(copied, previous);
    out.append(text, copied, from - copied);
    while (at < text.size() && (static_cast<unsigned char>(text[at]) >= 0xCC))
      next_code_point(text, at);
    append_normalized(text.substr(from, at - from), NormalForm::nfc, out);
    copied = previous = at;
  }
  out.append(text, copied);
  return out;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Join_Control, and the only Other_Alphabetic characters that are not marks: circled, squared
      // and negative letters.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

std::string normalize(std::string_view text, NormalForm form) {
  if (form == NormalForm::nfc) return normalize_nfc(text);
  std::string out;
  append_normalized(text, form, out);
  return out;
}

}  // namespace troupe::text
