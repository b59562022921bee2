#include "runtime/base/write_all.hpp"

#include <cerrno>

#include <unistd.h>

namespace troupe {

Result<void> write_all(int file, std::span<const std::byte> bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, std::string(what));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace troupe
