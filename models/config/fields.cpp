#include "models/config/fields.hpp"

#include <cmath>

#include <fmt/ranges.h>

namespace troupe {

namespace {

/// The value as in the file, cut to a length that fits a message. For arrays and objects only the
/// type: writing them out recurses as deep as they nest.
std::string excerpt(const nlohmann::json& value) {
  constexpr std::size_t limit = 60;
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

std::optional<std::int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

}  // namespace

Result<Fields> Fields::nested(std::string_view key) const {
  if (key.empty()) return *this;
  const nlohmann::json* found = find({key});
  if (found == nullptr || !found->is_object()) {
    return fail(ErrorCode::corrupt_data, "{}: {}: expected an object", where_, key);
  }
  return Fields(*found, where_);
}

const nlohmann::json* Fields::find(Spellings keys) const {
  for (const std::string_view key : keys) {
    const auto field = object_.find(key);
    if (field != object_.end() && !field->is_null()) return &*field;
  }
  return nullptr;
}

std::string_view Fields::spelling(Spellings keys) const {
  for (const std::string_view key : keys) {
    if (find({key}) != nullptr) return key;
  }
  return *keys.begin();
}

Error Fields::unsupported(std::string_view key, std::string_view found,
                          std::string_view supported) const {
  return fail(ErrorCode::unsupported, "{}: {} {} is not supported by this version ({})", where_,
              key, found, supported);
}

Error Fields::wrong(Spellings keys, std::string_view expected, const nlohmann::json& found) const {
  return fail(ErrorCode::corrupt_data, "{}: {}: expected {}, found {}", where_, spelling(keys),
              expected, excerpt(found));
}

Result<std::optional<std::int64_t>> Fields::optional_integer(Spellings keys, std::int64_t least,
                                                             std::int64_t most) const {
  const nlohmann::json* field = find(keys);
  if (field == nullptr) return std::optional<std::int64_t>();
  const auto number = as_integer(*field);
  if (!number || *number < least || *number > most) {
    return wrong(keys, fmt::format("an integer from {} to {}", least, most), *field);
  }
  return number;
}

Result<std::int64_t> Fields::integer(Spellings keys, std::int64_t least, std::int64_t most) const {
  TROUPE_TRY(const auto number, optional_integer(keys, least, most));
  if (!number) {
    return fail(ErrorCode::corrupt_data, "{}: missing key {}", where_, fmt::join(keys, " or "));
  }
  return *number;
}

Result<std::int64_t> Fields::integer_or(Spellings keys, std::int64_t least, std::int64_t most,
                                        std::int64_t fallback) const {
  TROUPE_TRY(const auto number, optional_integer(keys, least, most));
  return number.value_or(fallback);
}

Result<std::optional<double>> Fields::optional_number(Spellings keys, double least,
                                                      double most) const {
  const nlohmann::json* field = find(keys);
  if (field == nullptr) return std::optional<double>();
  const double number = field->is_number() ? field->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) {
    return wrong(keys, fmt::format("a number from {} to {}", least, most), *field);
  }
  return std::optional(number);
}

Result<double> Fields::number_or(Spellings keys, double least, double most, double fallback) const {
  TROUPE_TRY(const auto number, optional_number(keys, least, most));
  return number.value_or(fallback);
}

Result<bool> Fields::boolean_or(Spellings keys, bool fallback) const {
  const nlohmann::json* field = find(keys);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) return wrong(keys, "true or false", *field);
  return field->get<bool>();
}

Result<std::string> Fields::string_or(Spellings keys, std::string_view fallback) const {
  const nlohmann::json* field = find(keys);
  if (field == nullptr) return std::string(fallback);
  if (!field->is_string()) return wrong(keys, "a string", *field);
  return field->get<std::string>();
}

Result<std::vector<std::int64_t>> Fields::integers(Spellings keys, std::int64_t least,
                                                   std::int64_t most) const {
  std::vector<std::int64_t> numbers;
  const nlohmann::json* field = find(keys);
  if (field == nullptr) return numbers;
  const auto expected = fmt::format("an integer from {} to {}, or a list of such", least, most);
  const auto append = [&](const nlohmann::json& value) {
    const auto number = as_integer(value);
    if (!number || *number < least || *number > most) return false;
    numbers.push_back(*number);
    return true;
  };
  if (!field->is_array()) {
    if (!append(*field)) return wrong(keys, expected, *field);
    return numbers;
  }
  for (const nlohmann::json& value : *field) {
    if (!append(value)) return wrong(keys, expected, *field);
  }
  return numbers;
}

}  // namespace troupe
