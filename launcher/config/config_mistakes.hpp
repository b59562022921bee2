#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The mistakes of a configuration, reported together.
class ConfigMistakes {
 public:
  static constexpr std::size_t max_reported = 10;

  /// `line` orders the mistakes (0: from the command line, reported last), `where` begins the
  /// message.
  void add(int line, std::string_view where, std::string_view what);

  bool empty() const { return mistakes_.empty(); }

  /// Returns one invalid_argument with a line per mistake, in the file's order; after max_reported,
  /// the number of further ones.
  Error error() const;

 private:
  struct Mistake {
    int line = 0;
    std::string text;
  };
  std::vector<Mistake> mistakes_;
};

}  // namespace troupe
