#include "runtime/troupe/printable.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe {
namespace {

struct Range {
  char32_t first, last;
};

/// Combining marks and what is not drawn (general categories Mn, Me and Cf), of the scripts that
/// names are likely to have.
constexpr std::array<Range, 14> no_columns{{{0x300, 0x36f},
                                            {0x483, 0x489},
                                            {0x591, 0x5bd},
                                            {0x610, 0x61a},
                                            {0x64b, 0x65f},
                                            {0x6d6, 0x6dc},
                                            {0x93c, 0x93c},
                                            {0xe31, 0xe31},
                                            {0xe34, 0xe3a},
                                            {0x1ab0, 0x1aff},
                                            {0x200b, 0x200d},
                                            {0x20d0, 0x20f0},
                                            {0xfe00, 0xfe0f},
                                            {0xfe20, 0xfe2f}}};
constexpr std::array<Range, 17> two_columns{{{0x1100, 0x115f},
                                             {0x231a, 0x231b},
                                             {0x2e80, 0x303e},
                                             {0x3041, 0x33ff},
                                             {0x3400, 0x4dbf},
                                             {0x4e00, 0x9fff},
                                             {0xa000, 0xa4cf},
                                             {0xa960, 0xa97c},
                                             {0xac00, 0xd7a3},
                                             {0xf900, 0xfaff},
                                             {0xfe30, 0xfe6f},
                                             {0xff01, 0xff60},
                                             {0xffe0, 0xffe6},
                                             {0x1f300, 0x1f64f},
                                             {0x1f680, 0x1f6ff},
                                             {0x1f900, 0x1f9ff},
                                             {0x20000, 0x3fffd}}};
/// Controls, ends of lines and paragraphs, and marks of direction (UAX 9).
constexpr std::array<Range, 6> not_printed{{{0x0, 0x1f},
                                            {0x7f, 0x9f},
                                            {0x61c, 0x61c},
                                            {0x200e, 0x200f},
                                            {0x2028, 0x202e},
                                            {0x2066, 0x2069}}};

bool is_in(std::span<const Range> ranges, char32_t character) {
  const auto range = std::ranges::upper_bound(ranges, character, {}, &Range::first);
  return range != ranges.begin() && character <= std::prev(range)->last;
}

/// The character of these bytes, which are one of valid UTF-8.
char32_t character_of(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.size() == 1) return byte(0);
  char32_t character = byte(0) & (0x7fU >> bytes.size());
  for (std::size_t i = 1; i < bytes.size(); ++i) character = character << 6U | (byte(i) & 0x3fU);
  return character;
}

std::size_t width_of(char32_t character) {
  if (is_in(no_columns, character)) return 0;
  return is_in(two_columns, character) ? 2 : 1;
}

}  // namespace

std::size_t utf8_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                            : lead >= 0xe0 && lead < 0xf0 ? 3
                            : lead >= 0xf0 && lead < 0xf5 ? 4
                                                          : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool is_surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool is_too_large = lead == 0xf4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : bytes;
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = utf8_bytes(bytes, at);
    const std::string_view character = bytes.substr(at, std::max<std::size_t>(count, 1));
    if (count == 0 || is_in(not_printed, character_of(character))) {
      text += '?';
    } else {
      text += character;
    }
    at += character.size();
  }
  return text;
}

std::size_t width_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(utf8_bytes(text, at), 1);
    columns += width_of(character_of(text.substr(at, bytes)));
    at += bytes;
  }
  return columns;
}

std::string_view cut_to(std::string_view text, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(utf8_bytes(text, at), 1);
    taken += width_of(character_of(text.substr(at, bytes)));
    if (taken > columns) return text.substr(0, at);
    at += bytes;
  }
  return text;
}

std::size_t terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0) return 0;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<std::size_t>(size.ws_col, 40);
}

}  // namespace troupe
