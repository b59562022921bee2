#include "launcher/config/config_schema.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "launcher/config/schema_rows.hpp"

namespace troupe {
namespace schema {

std::string quoted_if_needed(std::string_view text) {
  const bool plain = !text.empty() && text.front() != '-' && text.front() != '.' &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
                     });
  const bool path = text.starts_with("./") || text.starts_with("../");
  // YAML's words for null, as yaml-cpp reads them.
  const bool nothing = text == "null" || text == "Null" || text == "NULL" || text == "~";
  if ((plain && !nothing) ||
      (path && text.find_first_of(" \t\n\"\\:#{}[],&*!|>'%@`") == text.npos)) {
    return std::string(text);
  }
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace schema

std::string_view to_string(ValueType type) {
  switch (type) {
    case ValueType::text:
      return "text";
    case ValueType::integer:
      return "an integer";
    case ValueType::number:
      return "a number";
    case ValueType::boolean:
      return "true or false";
    case ValueType::text_list:
      return "a list of texts";
  }
  return "a value";
}

std::span<const KeySpec> config_schema() {
  static const std::vector<KeySpec> all = [] {
    std::vector<KeySpec> rows = schema::model_and_cluster_rows();
    for (const auto& section :
         {schema::parallel_rows(), schema::engine_rows(), schema::kv_cache_rows(),
          schema::precision_rows(), schema::job_rows(), schema::slo_rows()}) {
      rows.insert(rows.end(), section.begin(), section.end());
    }
    return rows;
  }();
  return all;
}

std::string value_of(const KeySpec& spec, const Config& config) {
  std::string value = spec.get(config);
  return spec.allows_auto && value == "auto" ? std::string(spec.auto_word) : value;
}

const KeySpec* find_key(std::string_view key) {
  for (const KeySpec& spec : config_schema()) {
    if (spec.key == key) return &spec;
  }
  return nullptr;
}

}  // namespace troupe
