#include "tests/process/runtime/object/object_actors.hpp"

#include <fstream>

namespace troupe::test {

Result<std::string> Reader::mapping_of(const ObjectRef<Floats>& ref) {
  TROUPE_TRY(const auto view, context_.get(ref, limit));
  const auto at = reinterpret_cast<std::uintptr_t>(view.bytes().data());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto first = std::stoull(line, nullptr, 16);
    const auto last = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (at >= first && at < last) return line;
  }
  return fail(ErrorCode::not_found, "no mapping");
}

}  // namespace troupe::test
