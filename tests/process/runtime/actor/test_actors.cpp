#include "tests/process/runtime/actor/test_actors.hpp"

#include <fstream>

#include <sys/resource.h>
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

Result<void> Insider::spawn_with_slow_callback(int ms) {
  const Promise<void> ended;
  context_.spawn<Counter>({}, 1).then([ended, ms](const Result<ActorHandle<Counter>>& counter) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    ended.complete(counter.ok() ? Result<void>() : counter.error());
  });
  return ended.future().get(limit);
}

Leaver::~Leaver() {
  if (hangs_) std::this_thread::sleep_for(std::chrono::hours(1));
  if (note_.empty()) return;
  const auto memory = context_.shared_memory("last wish", 4096);
  std::ofstream(note_) << (memory.ok() ? "ok" : memory.error().message);
}

void Leaver::leave_no_room_for_threads() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 20);
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace troupe::test
