#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// `text` for a place between HTML's tags or in quotes: & < > " are replaced.
std::string html_escaped(std::string_view text);

}  // namespace troupe
