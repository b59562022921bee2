#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace troupe {

/// Reads typed fields of a JSON object; errors name the object's source. A key may have several
/// spellings; the first present one counts, and null counts as absent. The object must outlive it.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  using Spellings = std::initializer_list<std::string_view>;

  /// An integer in [least, most]; corrupt_data if absent.
  Result<std::int64_t> integer(Spellings keys, std::int64_t least, std::int64_t most) const;
  Result<std::int64_t> integer_or(Spellings keys, std::int64_t least, std::int64_t most,
                                  std::int64_t fallback) const;
  Result<std::optional<std::int64_t>> optional_integer(Spellings keys, std::int64_t least,
                                                       std::int64_t most) const;
  /// A finite number in [least, most].
  Result<std::optional<double>> optional_number(Spellings keys, double least, double most) const;
  Result<double> number_or(Spellings keys, double least, double most, double fallback) const;
  Result<bool> boolean_or(Spellings keys, bool fallback) const;
  Result<std::string> string_or(Spellings keys, std::string_view fallback) const;
  /// An integer or a list of integers, each in [least, most]; empty if absent.
  Result<std::vector<std::int64_t>> integers(Spellings keys, std::int64_t least,
                                             std::int64_t most) const;

  /// The fields of the object under `key`; these themselves for an empty key. corrupt_data if there
  /// is no object.
  Result<Fields> nested(std::string_view key) const;
  /// Returns the value under the first present spelling, or null.
  const nlohmann::json* find(Spellings keys) const;
  /// Returns the first present spelling, or the first of all if none is present.
  std::string_view spelling(Spellings keys) const;
  /// True if the key is present, even with null.
  bool mentions(std::string_view key) const { return object_.contains(key); }
  /// Makes an error of code unsupported that says what this version supports.
  Error unsupported(std::string_view key, std::string_view found, std::string_view supported) const;
  const std::string& where() const { return where_; }

 private:
  Error wrong(Spellings keys, std::string_view expected, const nlohmann::json& found) const;

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace troupe
