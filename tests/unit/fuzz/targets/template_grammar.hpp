#pragma once

#include <string>

#include "tests/unit/fuzz/targets/mutator.hpp"

namespace troupe::fuzz {

/// Writes templates that nearly always parse: statements and expressions of Jinja nested at random,
/// over names with values, with every filter, test and method, and with numbers that make loops
/// long and texts large.
class TemplateGrammar {
 public:
  explicit TemplateGrammar(Mutator& mutator) : mutator_(mutator) {}

  std::string block(int depth);

 private:
  std::string_view word(std::span<const std::string_view> words) { return mutator_.one_of(words); }
  std::string expression(int depth);
  std::string operation(int depth);
  std::string arguments(int depth);
  std::string statement(int depth);
  std::string loop(int depth);
  std::string macro(int depth);

  Mutator& mutator_;
};

}  // namespace troupe::fuzz
