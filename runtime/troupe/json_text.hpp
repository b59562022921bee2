#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace troupe {

/// A JSON string (RFC 8259) of any bytes; each one that is not of a UTF-8 character becomes U+FFFD.
std::string json_string(std::string_view bytes);
/// "[a,b]" of values that are JSON already.
std::string json_array(std::span<const std::string> values);

/// Puts a JSON object together, in the order of the calls.
class JsonObject {
 public:
  JsonObject& add(std::string_view name, std::string_view text) {
    return add_json(name, json_string(text));
  }
  JsonObject& add(std::string_view name, const char* text) {
    return add(name, std::string_view(text));
  }
  JsonObject& add(std::string_view name, const std::string& text) {
    return add(name, std::string_view(text));
  }
  template <std::integral Number>
  JsonObject& add(std::string_view name, Number number) {
    return add_json(name, fmt::format("{}", number));
  }
  /// `value` is JSON already.
  JsonObject& add_json(std::string_view name, std::string_view value);
  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

}  // namespace troupe
