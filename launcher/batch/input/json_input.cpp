#include "launcher/batch/input/json_input.hpp"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "launcher/batch/json_text.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// Returns the byte at which brackets outside of strings are nested deeper than allowed.
std::optional<std::size_t> find_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_json_depth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

/// Returns the reason in nlohmann's message, without its prefix, position and quotation of the
/// input.
std::string_view reason_of(std::string_view what) {
  if (const auto column = what.find("column "); column != what.npos) {
    if (const auto colon = what.find(": ", column); colon != what.npos)
      what.remove_prefix(colon + 2);
  } else if (const auto bracket = what.find("] "); bracket != what.npos) {
    what.remove_prefix(bracket + 2);
  }
  return what.substr(0, what.find("; last read"));
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, bool* invalid_utf8) {
  *invalid_utf8 = false;
  if (const auto place = text::find_invalid_utf8(text)) {
    *invalid_utf8 = true;
    return fail(ErrorCode::corrupt_data, "not valid UTF-8 at byte {}", *place + 1);
  }
  if (const auto place = text.find('\0'); place != text.npos) {
    return fail(ErrorCode::corrupt_data, "a NUL at byte {}", place + 1);
  }
  if (const auto place = find_too_deep(text)) {
    return fail(ErrorCode::corrupt_data, "nested deeper than {} at byte {}", max_json_depth,
                *place + 1);
  }
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    return fail(ErrorCode::corrupt_data, "not valid JSON at byte {}: {}", error.byte,
                reason_of(error.what()));
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::corrupt_data, "not valid JSON: {}", reason_of(error.what()));
  }
}

std::string describe_json(const nlohmann::json& value) {
  constexpr std::size_t longest = 60;
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  if (!value.is_string()) return value.dump();
  std::string_view text = value.get_ref<const std::string&>();
  const bool cut = text.size() > longest;
  if (cut) {
    std::size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text = text.substr(0, end);
  }
  std::string shown;
  append_json_string(shown, text);
  if (cut) shown.insert(shown.size() - 1, "...");
  return shown;
}

std::optional<std::int64_t> json_integer(const nlohmann::json& value) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    const auto largest = static_cast<std::uint64_t>(Limits::max());
    return number > largest ? Limits::max() : static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!std::isfinite(number) || std::trunc(number) != number) return std::nullopt;
  constexpr double edge = 9223372036854775808.0;  // 2^63
  if (number >= edge) return Limits::max();
  if (number < -edge) return Limits::min();
  return static_cast<std::int64_t>(number);
}

}  // namespace troupe
