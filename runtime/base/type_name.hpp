#pragma once

#include <string>
#include <typeinfo>

namespace troupe {

/// The type's name as C++ writes it: "std::out_of_range".
std::string type_name(const std::type_info& type);

}  // namespace troupe
