#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace troupe::fuzz {

/// Changes inputs at random; a seed always makes the same changes.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// A number in [0, count); 0 if count is 0.
  std::size_t below(std::size_t count);
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class T>
  const T& one_of(std::span<const T> choices) {
    return choices[below(choices.size())];
  }

  /// Returns `bytes` after a few changes: bits and bytes, parts removed, doubled or moved, and
  /// `words` inserted.
  std::string bytes(std::string bytes, std::span<const std::string_view> words = {});

  /// Changes one value somewhere in `json`: another value of the same or of another type, an entry
  /// removed, doubled or moved, and now and then a nest of many levels.
  void json(nlohmann::ordered_json& json);

  /// Sets one of `keys` somewhere in `json`, to a value of another key, to one of `values`, or to
  /// any value.
  void set_key(nlohmann::ordered_json& json, std::span<const std::string_view> keys,
               std::span<const nlohmann::ordered_json> values);

  /// Well-formed UTF-8 of 0 to 80 code points from all over Unicode.
  std::string text();

 private:
  nlohmann::ordered_json value();
  void change_bytes(std::string& bytes, std::span<const std::string_view> words);
  void change_number(nlohmann::ordered_json& number);

  std::mt19937_64 random_;
};

}  // namespace troupe::fuzz
