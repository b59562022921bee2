#pragma once

#include <string_view>
#include <vector>

namespace troupe {

/// Returns the words of "a,b,c", which may be empty: one more than there are commas.
std::vector<std::string_view> comma_separated(std::string_view text);

}  // namespace troupe
