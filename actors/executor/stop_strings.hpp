#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Where a text holds a stop string: bytes [begin, end).
struct StopMatch {
  std::size_t string = 0;  ///< index of the stop string
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The first of `strings`, in their order, that occurs in `text` and ends behind byte `searched`;
/// of its occurrences the first such. Text before `searched` was found to hold none. As vLLM, an
/// earlier string of the list goes before one that occurs earlier in the text.
std::optional<StopMatch> find_stop_string(std::span<const std::string> strings,
                                          std::string_view text, std::size_t searched);

}  // namespace troupe
