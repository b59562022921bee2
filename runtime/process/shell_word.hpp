#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// The text as one word of a POSIX shell: in single quotes, unless all of its characters are plain.
std::string shell_word(std::string_view text);

}  // namespace troupe
