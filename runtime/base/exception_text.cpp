#include "runtime/base/exception_text.hpp"

#include <exception>

#include <cxxabi.h>

#include "runtime/base/type_name.hpp"

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

std::string current_exception_description() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return current_exception_text();
  return type_name(*type) + ": " + current_exception_text();
}

}  // namespace troupe
