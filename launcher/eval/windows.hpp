#pragma once

#include <cstddef>
#include <vector>

#include "launcher/cli/eval_options.hpp"

namespace troupe {

/// Tokens of a text that a model is fed at once, from position 0.
struct Window {
  std::size_t begin = 0;
  std::size_t length = 0;
  std::size_t first_scored = 1;  ///< place in the window; earlier ones are context only

  std::size_t scored() const { return length - first_scored; }
  bool operator==(const Window&) const = default;
};

/// Cuts a text of `tokens` tokens into windows. In windows that overlap, each token is scored once,
/// with the most context there is; the first token of the text never is. What is left at the end,
/// less than a window, is dropped, unless there is nothing else.
std::vector<Window> cut_windows(std::size_t tokens, const WindowOptions& options);

}  // namespace troupe
