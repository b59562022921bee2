#include "models/text/unicode/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace troupe::text {
namespace {

/// The properties of a lead byte: the number of continuation bytes and the range of the first of
/// them.
struct Lead {
  int continuations;  // 0: not a lead byte of a longer sequence
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

enum class Form { well_formed, ill_formed, cut };

/// Returns the form of the longest well-formed prefix of a sequence at the start of non-ASCII
/// `bytes`; sets `length` to its number of bytes, at least 1.
Form scan_sequence(std::string_view bytes, std::size_t& length) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  length = 1;
  if (lead.continuations == 0) return Form::ill_formed;
  for (int i = 1; i <= lead.continuations; ++i) {
    if (length == bytes.size()) return Form::cut;
    const auto byte = static_cast<unsigned char>(bytes[length]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : byte >= 0x80 && byte <= 0xBF;
    if (!fits) return Form::ill_formed;
    ++length;
  }
  return Form::well_formed;
}

std::size_t ascii_run(std::string_view bytes, std::size_t from) {
  std::size_t at = from;
  for (std::uint64_t word; at + 8 <= bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view bytes) {
  for (std::size_t at = ascii_run(bytes, 0); at < bytes.size(); at = ascii_run(bytes, at)) {
    std::size_t length = 0;
    if (scan_sequence(bytes.substr(at), length) != Form::well_formed) return at;
    at += length;
  }
  return std::nullopt;
}

bool is_valid_utf8(std::string_view bytes) { return !find_invalid_utf8(bytes); }

std::size_t append_lossy(std::string_view bytes, bool is_end, std::string& out) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t run_end = ascii_run(bytes, at);
    out.append(bytes, at, run_end - at);
    at = run_end;
    if (at == bytes.size()) break;
    std::size_t length = 0;
    const Form form = scan_sequence(bytes.substr(at), length);
    if (form == Form::cut && !is_end) return at;
    out.append(form == Form::well_formed ? bytes.substr(at, length) : replacement_character);
    at += length;
  }
  return bytes.size();
}

std::size_t first_character_bytes(std::string_view bytes) {
  if (static_cast<unsigned char>(bytes[0]) < 0x80) return 1;
  std::size_t length = 0;
  scan_sequence(bytes, length);
  return length;
}

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t offset) -> char32_t {
    return static_cast<unsigned char>(text[position + offset]);
  };
  const char32_t lead = byte(0);
  char32_t code_point = lead;
  std::size_t length = 1;
  if (lead >= 0xF0) {
    code_point = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    length = 3;
  } else if (lead >= 0x80) {
    code_point = (lead & 31) << 6 | (byte(1) & 63);
    length = 2;
  }
  position += length;
  return code_point;
}

void append_code_point(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 63));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 63));
    put(0x80 | (code_point >> 6 & 63));
    put(0x80 | (code_point & 63));
  }
}

std::u32string to_code_points(std::string_view text) {
  std::u32string code_points;
  for (std::size_t at = 0; at < text.size();) code_points.push_back(next_code_point(text, at));
  return code_points;
}

std::string to_utf8(std::u32string_view code_points) {
  std::string text;
  for (const char32_t code_point : code_points) append_code_point(code_point, text);
  return text;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace troupe::text
