#include "tests/process/runtime/actor/test_actors.hpp"

#include <sys/stat.h>

namespace troupe::test {

Result<std::int64_t> Insider::memory_inode(const std::string& name, std::uint64_t bytes) {
  TROUPE_TRY(const auto fd, context_.shared_memory(name, bytes));
  struct stat file{};
  if (::fstat(fd.get(), &file) != 0) return fail_errno(errno, "fstat");
  return static_cast<std::int64_t>(file.st_ino);
}

Result<void> Insider::write_memory(const std::string& name, std::uint64_t bytes, int value) {
  TROUPE_TRY(const auto fd, context_.shared_memory(name, bytes));
  if (::pwrite(fd.get(), &value, sizeof value, 0) != sizeof value)
    return fail_errno(errno, "pwrite");
  return {};
}

Result<int> Insider::read_memory(const std::string& name, std::uint64_t bytes) {
  TROUPE_TRY(const auto fd, context_.shared_memory(name, bytes));
  int value = -1;
  if (::pread(fd.get(), &value, sizeof value, 0) != sizeof value) return fail_errno(errno, "pread");
  return value;
}

}  // namespace troupe::test
