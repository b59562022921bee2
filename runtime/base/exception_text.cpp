#include "runtime/base/exception_text.hpp"

#include <exception>

namespace troupe {

std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace troupe
