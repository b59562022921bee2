#include "tests/support/source_path.hpp"

namespace troupe::test {

std::filesystem::path source_path(std::string_view relative) {
  const std::filesystem::path root = TROUPE_SOURCE_DIR;
  return relative.empty() ? root : root / relative;
}

}  // namespace troupe::test
