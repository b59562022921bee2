#pragma once

#include <string_view>

namespace troupe {

/// "launcher (Troupe) 1.2.3": the version that CMakeLists.txt gives the project.
std::string_view program_version();

}  // namespace troupe
