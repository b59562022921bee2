#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/text/unicode/characters.hpp"
#include "runtime/base/result.hpp"

namespace troupe::text {

/// What is done to text before it is cut into words: the "normalizer" of a tokenizer.json.
class Normalizer {
 public:
  /// Reads null, NFC, NFD, NFKC, NFKD, Prepend, Replace (of a string), or a Sequence of them.
  /// Errors: unsupported; corrupt_data if it is larger than text_limits.hpp allows. May throw
  /// nlohmann::json::exception on values of other types.
  static Result<Normalizer> parse(const nlohmann::json& normalizer);

  /// `text`, which is well-formed UTF-8, after all steps. Errors: resource_exhausted if it grows
  /// beyond largest_grown_text.
  Result<std::string> apply(std::string_view text) const;

  bool is_identity() const { return steps_.empty(); }

 private:
  struct Prepend {
    std::string prefix;  // put before any text but an empty one
  };
  struct Replace {
    std::string from, to;
  };

  Result<> add(const nlohmann::json& normalizer);

  std::vector<std::variant<NormalForm, Prepend, Replace>> steps_;
};

}  // namespace troupe::text
