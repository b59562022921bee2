#include "runtime/base/exception_text.hpp"

#include <cstdlib>
#include <exception>
#include <memory>

#include <cxxabi.h>

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
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return std::string(status == 0 ? name.get() : type->name()) + ": " + current_exception_text();
}

}  // namespace troupe
