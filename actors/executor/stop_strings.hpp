#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// The place of a stop string in a text: bytes [begin, end).
struct StopMatch {
  std::size_t string = 0;  ///< index of the stop string
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Returns the first of `strings`, in list order, with an occurrence in `text` that ends after byte
/// `searched`, and the first such occurrence. Text before `searched` is known to contain none. As
/// in vLLM, list order goes before position in the text.
std::optional<StopMatch> find_stop_string(std::span<const std::string> strings,
                                          std::string_view text, std::size_t searched);

}  // namespace troupe
