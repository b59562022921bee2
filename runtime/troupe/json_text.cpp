#include "runtime/troupe/json_text.hpp"

#include <algorithm>

#include "runtime/base/terminal_text.hpp"

namespace troupe {

std::string json_string(std::string_view bytes) {
  std::string text = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = utf8_bytes(bytes, at);
    const auto lead = static_cast<unsigned char>(bytes[at]);
    if (count == 0) {
      text += "\\ufffd";
    } else if (lead == '"' || lead == '\\') {
      text += {'\\', bytes[at]};
    } else if (lead == '\n') {
      text += "\\n";
    } else if (lead < 0x20 || lead == 0x7f) {
      text += fmt::format("\\u{:04x}", lead);
    } else {
      text += bytes.substr(at, count);
    }
    at += std::max<std::size_t>(count, 1);
  }
  return text + "\"";
}

std::string json_array(std::span<const std::string> values) {
  std::string text = "[";
  for (const std::string& value : values) {
    if (text.size() > 1) text += ",";
    text += value;
  }
  return text + "]";
}

JsonObject& JsonObject::add_json(std::string_view name, std::string_view value) {
  if (!members_.empty()) members_ += ",";
  members_ += fmt::format("{}:{}", json_string(name), value);
  return *this;
}

}  // namespace troupe
