#pragma once

#include <cstddef>

namespace troupe {

/// The columns that a character takes on a terminal (Unicode 15.0): two for wide ones (East Asian
/// Width W and F, UAX 11), none for combining ones and formats, else one, also for controls.
std::size_t width_of(char32_t character);

}  // namespace troupe
