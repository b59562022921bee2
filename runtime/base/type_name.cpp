#include "runtime/base/type_name.hpp"

#include <cstdlib>
#include <memory>

#include <cxxabi.h>

namespace troupe {

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return readable ? readable.get() : type.name();
}

}  // namespace troupe
