#pragma once

#include <cstddef>

namespace troupe {

/// A part of the lines of a file: every `count`-th one, from the line `index` (counted from 0) on.
struct Shard {
  std::size_t index = 0;
  std::size_t count = 1;  ///< > index

  /// `line` counts from 1.
  bool has(std::size_t line) const { return (line - 1) % count == index; }
};

}  // namespace troupe
