#include "runtime/base/read_all_at.hpp"

#include <cerrno>

#include <unistd.h>

namespace troupe {

Result<void> read_all_at(int file, std::span<std::byte> bytes, std::uint64_t offset,
                         std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno(got < 0 ? errno : EIO, what);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace troupe
