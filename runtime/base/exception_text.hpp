#pragma once

#include <string>

namespace troupe {

/// The text of the exception being handled; for use in a catch (...) block.
std::string current_exception_text();

/// The same with the exception's type before it: "std::out_of_range: vector::at".
std::string current_exception_description();

}  // namespace troupe
