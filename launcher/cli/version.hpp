#pragma once

#include <string_view>

namespace troupe {

/// "launcher (Troupe) 1.2.3": the project version in CMakeLists.txt.
std::string_view program_version();

}  // namespace troupe
