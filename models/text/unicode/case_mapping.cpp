#include "models/text/unicode/case_mapping.hpp"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

struct Expansion {
  char32_t code_point;
  std::u32string_view upper, title;
};

/// The characters whose upper or title case is several characters, in order (SpecialCasing.txt).
constexpr Expansion expansions[] = {
    // clang-format off
    {0x00DF, U"SS", U"Ss"},
    {0x0149, U"\u02BCN", U"\u02BCN"},
    {0x01F0, U"J\u030C", U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E96, U"H\u0331", U"H\u0331"},
    {0x1E97, U"T\u0308", U"T\u0308"},
    {0x1E98, U"W\u030A", U"W\u030A"},
    {0x1E99, U"Y\u030A", U"Y\u030A"},
    {0x1E9A, U"A\u02BE", U"A\u02BE"},
    {0x1F50, U"\u03A5\u0313", U"\u03A5\u0313"},
    {0x1F52, U"\u03A5\u0313\u0300", U"\u03A5\u0313\u0300"},
    {0x1F54, U"\u03A5\u0313\u0301", U"\u03A5\u0313\u0301"},
    {0x1F56, U"\u03A5\u0313\u0342", U"\u03A5\u0313\u0342"},
    {0x1F80, U"\u1F08\u0399", U"\u1F88"},
    {0x1F81, U"\u1F09\u0399", U"\u1F89"},
    {0x1F82, U"\u1F0A\u0399", U"\u1F8A"},
    {0x1F83, U"\u1F0B\u0399", U"\u1F8B"},
    {0x1F84, U"\u1F0C\u0399", U"\u1F8C"},
    {0x1F85, U"\u1F0D\u0399", U"\u1F8D"},
    {0x1F86, U"\u1F0E\u0399", U"\u1F8E"},
    {0x1F87, U"\u1F0F\u0399", U"\u1F8F"},
    {0x1F88, U"\u1F08\u0399", U"\u1F88"},
    {0x1F89, U"\u1F09\u0399", U"\u1F89"},
    {0x1F8A, U"\u1F0A\u0399", U"\u1F8A"},
    {0x1F8B, U"\u1F0B\u0399", U"\u1F8B"},
    {0x1F8C, U"\u1F0C\u0399", U"\u1F8C"},
    {0x1F8D, U"\u1F0D\u0399", U"\u1F8D"},
    {0x1F8E, U"\u1F0E\u0399", U"\u1F8E"},
    {0x1F8F, U"\u1F0F\u0399", U"\u1F8F"},
    {0x1F90, U"\u1F28\u0399", U"\u1F98"},
    {0x1F91, U"\u1F29\u0399", U"\u1F99"},
    {0x1F92, U"\u1F2A\u0399", U"\u1F9A"},
    {0x1F93, U"\u1F2B\u0399", U"\u1F9B"},
    {0x1F94, U"\u1F2C\u0399", U"\u1F9C"},
    {0x1F95, U"\u1F2D\u0399", U"\u1F9D"},
    {0x1F96, U"\u1F2E\u0399", U"\u1F9E"},
    {0x1F97, U"\u1F2F\u0399", U"\u1F9F"},
    {0x1F98, U"\u1F28\u0399", U"\u1F98"},
    {0x1F99, U"\u1F29\u0399", U"\u1F99"},
    {0x1F9A, U"\u1F2A\u0399", U"\u1F9A"},
    {0x1F9B, U"\u1F2B\u0399", U"\u1F9B"},
    {0x1F9C, U"\u1F2C\u0399", U"\u1F9C"},
    {0x1F9D, U"\u1F2D\u0399", U"\u1F9D"},
    {0x1F9E, U"\u1F2E\u0399", U"\u1F9E"},
    {0x1F9F, U"\u1F2F\u0399", U"\u1F9F"},
    {0x1FA0, U"\u1F68\u0399", U"\u1FA8"},
    {0x1FA1, U"\u1F69\u0399", U"\u1FA9"},
    {0x1FA2, U"\u1F6A\u0399", U"\u1FAA"},
    {0x1FA3, U"\u1F6B\u0399", U"\u1FAB"},
    {0x1FA4, U"\u1F6C\u0399", U"\u1FAC"},
    {0x1FA5, U"\u1F6D\u0399", U"\u1FAD"},
    {0x1FA6, U"\u1F6E\u0399", U"\u1FAE"},
    {0x1FA7, U"\u1F6F\u0399", U"\u1FAF"},
    {0x1FA8, U"\u1F68\u0399", U"\u1FA8"},
    {0x1FA9, U"\u1F69\u0399", U"\u1FA9"},
    {0x1FAA, U"\u1F6A\u0399", U"\u1FAA"},
    {0x1FAB, U"\u1F6B\u0399", U"\u1FAB"},
    {0x1FAC, U"\u1F6C\u0399", U"\u1FAC"},
    {0x1FAD, U"\u1F6D\u0399", U"\u1FAD"},
    {0x1FAE, U"\u1F6E\u0399", U"\u1FAE"},
    {0x1FAF, U"\u1F6F\u0399", U"\u1FAF"},
    {0x1FB2, U"\u1FBA\u0399", U"\u1FBA\u0345"},
    {0x1FB3, U"\u0391\u0399", U"\u1FBC"},
    {0x1FB4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1FB6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1FB7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {0x1FBC, U"\u0391\u0399", U"\u1FBC"},
    {0x1FC2, U"\u1FCA\u0399", U"\u1FCA\u0345"},
    {0x1FC3, U"\u0397\u0399", U"\u1FCC"},
    {0x1FC4, U"\u0389\u0399", U"\u0389\u0345"},
    {0x1FC6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1FC7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {0x1FCC, U"\u0397\u0399", U"\u1FCC"},
    {0x1FD2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1FD3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1FD6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1FD7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1FE2, U"\u03A5\u0308\u0300", U"\u03A5\u0308\u0300"},
    {0x1FE3, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x1FE4, U"\u03A1\u0313", U"\u03A1\u0313"},
    {0x1FE6, U"\u03A5\u0342", U"\u03A5\u0342"},
    {0x1FE7, U"\u03A5\u0308\u0342", U"\u03A5\u0308\u0342"},
    {0x1FF2, U"\u1FFA\u0399", U"\u1FFA\u0345"},
    {0x1FF3, U"\u03A9\u0399", U"\u1FFC"},
    {0x1FF4, U"\u038F\u0399", U"\u038F\u0345"},
    {0x1FF6, U"\u03A9\u0342", U"\u03A9\u0342"},
    {0x1FF7, U"\u03A9\u0342\u0399", U"\u03A9\u0342\u0345"},
    {0x1FFC, U"\u03A9\u0399", U"\u1FFC"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
    {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
    {0xFB16, U"\u054E\u0546", U"\u054E\u0576"},
    {0xFB17, U"\u0544\u053D", U"\u0544\u056D"},
    // clang-format on
};

struct Range {
  char32_t first, last;
};

// Properties beyond the general category (PropList.txt, DerivedNumericType.txt).
constexpr Range other_uppercase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr Range other_lowercase[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Range other_digits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
/// Punctuation inside words (Word_Break MidLetter, MidNumLet and Single_Quote).
constexpr Range word_punctuation[] = {
    {0x27, 0x27},     {0x2E, 0x2E},     {0x3A, 0x3A},     {0xB7, 0xB7},
    {0x387, 0x387},   {0x55F, 0x55F},   {0x5F4, 0x5F4},   {0x2018, 0x2019},
    {0x2024, 0x2024}, {0x2027, 0x2027}, {0xFE13, 0xFE13}, {0xFE52, 0xFE52},
    {0xFE55, 0xFE55}, {0xFF07, 0xFF07}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1A}};

template <std::size_t count>
bool is_in(const Range (&ranges)[count], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

/// True for a mark or a sign inside a word, which the rule of the final sigma skips.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return is_in(word_punctuation, c);
  }
}

const Expansion* find_expansion(char32_t c) {
  const auto* found = std::lower_bound(
      std::begin(expansions), std::end(expansions), c,
      [](const Expansion& expansion, char32_t value) { return expansion.code_point < value; });
  return found != std::end(expansions) && found->code_point == c ? found : nullptr;
}

void append_upper(char32_t c, std::u32string& out) {
  if (const Expansion* expansion = find_expansion(c)) {
    out += expansion->upper;
  } else {
    out += static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
  }
}

void append_title(char32_t c, std::u32string& out) {
  if (const Expansion* expansion = find_expansion(c)) {
    out += expansion->title;
  } else {
    out += static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  }
}

bool is_final_sigma(std::u32string_view text, std::size_t at) {
  std::size_t before = at, after = at + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::u32string_view text, std::size_t at, std::u32string& out) {
  constexpr char32_t sigma = 0x3A3, final_sigma = 0x3C2, dotted_i = 0x130;
  if (text[at] == sigma && is_final_sigma(text, at)) {
    out += final_sigma;
  } else if (text[at] == dotted_i) {
    out += U"i\u0307";
  } else {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[at])));
  }
}

/// Calls `append(characters, at, out)` for every character of `text`.
template <class Append>
std::string map_characters(std::string_view text, Append append) {
  const std::u32string characters = to_code_points(text);
  std::u32string out;
  out.reserve(characters.size());
  for (std::size_t at = 0; at < characters.size(); ++at) append(characters, at, out);
  return to_utf8(out);
}

}  // namespace

std::string to_upper(std::string_view text) {
  return map_characters(text, [](const std::u32string& characters, std::size_t at, auto& out) {
    append_upper(characters[at], out);
  });
}

std::string to_lower(std::string_view text) {
  return map_characters(text, [](const std::u32string& characters, std::size_t at, auto& out) {
    append_lower(characters, at, out);
  });
}

std::string capitalize(std::string_view text) {
  return map_characters(text, [](const std::u32string& characters, std::size_t at, auto& out) {
    if (at == 0) {
      append_title(characters[at], out);
    } else {
      append_lower(characters, at, out);
    }
  });
}

std::string to_title(std::string_view text) {
  return map_characters(text, [](const std::u32string& characters, std::size_t at, auto& out) {
    if (at > 0 && is_cased(characters[at - 1])) {
      append_lower(characters, at, out);
    } else {
      append_title(characters[at], out);
    }
  });
}

std::string swap_case(std::string_view text) {
  return map_characters(text, [](const std::u32string& characters, std::size_t at, auto& out) {
    if (is_upper(characters[at])) {
      append_lower(characters, at, out);
    } else if (is_lower(characters[at])) {
      append_upper(characters[at], out);
    } else {
      out += characters[at];
    }
  });
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || is_in(other_uppercase, c);
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || is_in(other_lowercase, c);
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) { return is_decimal(c) || is_in(other_digits, c); }

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == U' ';
    default:
      return true;
  }
}

}  // namespace troupe::text
