#pragma once

#include <string>

namespace troupe {

/// The text of the exception being handled; for use in a catch (...) block.
std::string current_exception_text();

}  // namespace troupe
