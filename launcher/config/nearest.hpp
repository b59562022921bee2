#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace troupe {

/// The optimal string alignment distance: insertions, deletions, substitutions and swaps of
/// adjacent letters that turn `a` into `b` (Damerau 1964, no substring edited twice), in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the known word nearest to `word`, ignoring case and '-' against '_'; the first of
/// equals. Empty if none is near enough to be meant (more than a third of the letters differ).
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace troupe
