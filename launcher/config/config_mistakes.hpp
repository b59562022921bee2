#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The mistakes of a configuration, told all at once.
class ConfigMistakes {
 public:
  static constexpr std::size_t max_reported = 10;

  /// `line` orders the mistakes (0: from the command line, told last), `where` begins the message.
  void add(int line, std::string_view where, std::string_view what);

  bool empty() const { return mistakes_.empty(); }

  /// One invalid_argument with a line per mistake, in the file's order; after max_reported, how
  /// many more there are.
  Error error() const;

 private:
  struct Mistake {
    int line = 0;
    std::string text;
  };
  std::vector<Mistake> mistakes_;
};

}  // namespace troupe
