#pragma once

#include <string>

namespace troupe {

/// What the exception that is being handled says; for use in a catch (...) block.
std::string current_exception_text();

}  // namespace troupe
