#include "launcher/config/config_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <yaml-cpp/yaml.h>

namespace troupe {
namespace {

template <class T>
std::optional<T> whole_number(const std::string& text) {
  T value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_quoted(const YAML::Node& node) { return node.Tag() == "!"; }

std::optional<std::int64_t> as_integer(const YAML::Node& node) {
  if (!node.IsScalar() || is_quoted(node)) return std::nullopt;
  return whole_number<std::int64_t>(node.Scalar());
}

std::optional<double> as_number(const YAML::Node& node) {
  if (!node.IsScalar() || is_quoted(node)) return std::nullopt;
  const auto value = whole_number<double>(node.Scalar());
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> as_boolean(const YAML::Node& node) {
  if (!node.IsScalar() || is_quoted(node)) return std::nullopt;
  const std::string& word = node.Scalar();
  if (word == "true" || word == "True" || word == "TRUE") return true;
  if (word == "false" || word == "False" || word == "FALSE") return false;
  return std::nullopt;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string result;
  for (std::string_view word : words) result += (result.empty() ? "" : ", ") + std::string(word);
  return result;
}

std::string expected(const KeySpec& spec) {
  std::string what(to_string(spec.type));
  if (!spec.choices.empty()) what = "one of " + joined(spec.choices);
  return spec.allows_auto ? fmt::format("{} or {}", what, spec.auto_word) : what;
}

Error wrong(const KeySpec& spec, const YAML::Node& node) {
  const auto& [from, to] = spec.renamed;
  if (!from.empty() && node.IsScalar() && node.Scalar() == from) {
    return fail(ErrorCode::invalid_argument, "{}: '{}' is called '{}' now", spec.key, from, to);
  }
  return fail(ErrorCode::invalid_argument, "{}: expected {}, found {}", spec.key, expected(spec),
              kind_of(node));
}

/// Fills the member for the type; false if the node holds another type.
bool fill(ConfigValue& value, ValueType type, const YAML::Node& node) {
  switch (type) {
    case ValueType::text:
      if (!node.IsScalar()) return false;
      value.text = node.Scalar();
      return !value.text.empty();
    case ValueType::integer: {
      const auto integer = as_integer(node);
      value.integer = integer.value_or(0);
      return integer.has_value();
    }
    case ValueType::number: {
      const auto number = as_number(node);
      value.number = number.value_or(0);
      return number.has_value();
    }
    case ValueType::boolean: {
      const auto boolean = as_boolean(node);
      value.boolean = boolean.value_or(false);
      return boolean.has_value();
    }
    case ValueType::text_list:
      if (node.IsScalar()) value.list = {node.Scalar()};  // a single name needs no brackets
      if (node.IsSequence()) {
        for (const auto& item : node) {
          if (!item.IsScalar()) return false;
          value.list.push_back(item.Scalar());
        }
      }
      return (node.IsScalar() || node.IsSequence()) &&
             std::none_of(value.list.begin(), value.list.end(),
                          [](const std::string& text) { return text.empty(); });
  }
  return false;
}

/// The value as written in the table's choices and this_version.
std::string canonical(const KeySpec& spec, const ConfigValue& value) {
  if (value.automatic) return std::string(spec.auto_word);
  switch (spec.type) {
    case ValueType::text:
      return value.text;
    case ValueType::integer:
      return fmt::format("{}", value.integer);
    case ValueType::number:
      return fmt::format("{}", value.number);
    case ValueType::boolean:
      return value.boolean ? "true" : "false";
    case ValueType::text_list:
      return value.list.empty() ? "[]" : "[...]";
  }
  return {};
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::string shortened(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::size_t end = std::min(text.size(), longest);
  // Do not cut within a UTF-8 character.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  std::string result;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
    } else {
      result += c;
    }
  }
  return text.size() > end ? result + "..." : result;
}

std::string kind_of(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "keys and values";
  const std::string shown = shortened(node.Scalar());
  if (as_integer(node)) return fmt::format("the integer {}", shown);
  if (as_number(node)) return fmt::format("the number {}", shown);
  if (as_boolean(node)) return fmt::format("{}", shown);
  return fmt::format("the text \"{}\"", shown);
}

Result<ConfigValue> read_value(const KeySpec& spec, const YAML::Node& node) {
  ConfigValue value;
  if (spec.allows_auto && node.IsScalar() && node.Scalar() == spec.auto_word) {
    value.automatic = true;
  } else if (!fill(value, spec.type, node)) {
    return wrong(spec, node);
  }
  const std::string written = canonical(spec, value);
  if (!value.automatic) {
    if (!spec.choices.empty() && !contains(spec.choices, written)) return wrong(spec, node);
    const double size =
        spec.type == ValueType::integer ? static_cast<double>(value.integer) : value.number;
    const bool numeric = spec.type == ValueType::integer || spec.type == ValueType::number;
    if (numeric && spec.choices.empty() && (size < spec.minimum || size > spec.maximum)) {
      return fail(ErrorCode::invalid_argument, "{}: expected {} from {} to {}, found {}", spec.key,
                  expected(spec), spec.minimum, fmt::format("{:.16g}", spec.maximum), written);
    }
  }
  if (!spec.this_version.empty() && !contains(spec.this_version, written)) {
    const bool is_list = spec.type == ValueType::text_list;
    return fail(ErrorCode::unsupported, "{}: {} is not in this version; it runs {}", spec.key,
                is_list ? "a list with entries" : shortened(written), joined(spec.this_version));
  }
  return value;
}

}  // namespace troupe
