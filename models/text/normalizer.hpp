#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/text/unicode/characters.hpp"
#include "runtime/base/result.hpp"

namespace troupe::text {

/// The transformation of text before it is split into words: the "normalizer" of a tokenizer.json.
class Normalizer {
 public:
  /// Reads null, NFC, NFD, NFKC, NFKD, Prepend, Replace (of a string), or a Sequence of them.
  /// Errors: unsupported; corrupt_data if it is larger than text_limits.hpp allows. May throw
  /// nlohmann::json::exception on values of other types.
  static Result<Normalizer> parse(const nlohmann::json& normalizer);

  /// Returns `text`, which is well-formed UTF-8, after all steps. Errors: resource_exhausted if it
  /// grows beyond largest_grown_text.
  Result<std::string> apply(std::string_view text) const;

  bool is_identity() const { return steps_.empty(); }

 private:
  struct Prepend {
    std::string prefix;  // prepended to any non-empty text
  };
  struct Replace {
    std::string from, to;
  };

  Result<> add(const nlohmann::json& normalizer);

  std::vector<std::variant<NormalForm, Prepend, Replace>> steps_;
};

}  // namespace troupe::text
