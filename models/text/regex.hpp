#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe::text {

/// A regular expression in the dialect of tokenizer files (Oniguruma), compiled by PCRE2 to machine
/// code. `\s`, `\w` and `\h`, which the two define differently, are rewritten as sets.
///
/// Matching is const and may run on many threads at once.
class Regex {
 public:
  /// Errors: unsupported, with PCRE2's message and the position.
  static Result<Regex> compile(std::string_view pattern);

  /// Calls `on_part(part, is_match)` for the matches in `text`, which is well-formed UTF-8, and for
  /// the text between them, from left to right; never with an empty part. Errors:
  /// resource_exhausted if a match takes too many steps or too much memory.
  Result<> split(std::string_view text,
                 const std::function<void(std::string_view part, bool is_match)>& on_part) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

/// Rewrites the character classes in `pattern` that PCRE2 reads differently from Oniguruma.
Result<std::string> translate_classes(std::string_view pattern);

}  // namespace troupe::text
