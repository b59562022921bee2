#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "runtime/base/control_groups.hpp"
#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/fault/launcher/support/undisturbed_run.hpp"
#include "tests/support/time_scale.hpp"

// The kernel kills a process of a job whose control group has run out of memory.

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int requests = seconds_of_requests;

bool write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return out.good();
}

/// A memory control group that this process is in until leave(), and its children from then on.
class OwnMemoryGroup {
 public:
  /// None if this process may not make one.
  static std::optional<OwnMemoryGroup> enter() {
    for (const MemoryGroup& parent : memory_groups()) {
      OwnMemoryGroup group(parent.folder());
      std::error_code error;
      std::filesystem::create_directory(group.folder_, error);
      const bool counts = std::filesystem::exists(group.folder_ / group.limit_) &&
                          write(group.folder_ / "cgroup.procs", std::to_string(::getpid()));
      if (counts) return group;
      std::filesystem::remove(group.folder_, error);
    }
    return std::nullopt;
  }
  void leave() const { write(parent_ / "cgroup.procs", std::to_string(::getpid())); }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    std::ifstream(folder_ / used_) >> bytes;
    return bytes;
  }
  bool limit(std::uint64_t bytes) const { return write(folder_ / limit_, std::to_string(bytes)); }
  /// Once no process is in it.
  void remove() const {
    std::error_code error;
    std::filesystem::remove(folder_, error);
  }

 private:
  explicit OwnMemoryGroup(std::filesystem::path parent)
      : parent_(std::move(parent)), folder_(parent_ / fmt::format("troupe-test-{}", ::getpid())) {
    const bool is_v1 = std::filesystem::exists(parent_ / "memory.limit_in_bytes");
    limit_ = is_v1 ? "memory.limit_in_bytes" : "memory.max";
    used_ = is_v1 ? "memory.usage_in_bytes" : "memory.current";
  }

  std::filesystem::path parent_, folder_;
  const char* limit_ = nullptr;
  const char* used_ = nullptr;
};

TEST(OutOfMemory, is_told_as_the_cause_and_survived) {
  const auto group = OwnMemoryGroup::enter();
  if (!group) GTEST_SKIP() << "no memory control group can be made here";
  auto run = LauncherRun::start("tensor_parallel_size: 2", requests, 64, "restart: {max: 20}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  const bool has_begun = run->wait_for_answers(2, 30s * time_scale);
  group->leave();
  ASSERT_TRUE(has_begun) << run->stderr_text();
  // The keys and values of the next tokens do not fit.
  const auto limit = Clock::now() + 20s * time_scale;
  const std::uint64_t plenty = std::uint64_t{1} << 40;
  ASSERT_TRUE(group->limit(group->used() + (std::uint64_t{256} << 10)));
  while (run->log_text("launcher").find("as memory had run out") == std::string::npos) {
    if (Clock::now() > limit) break;
    std::this_thread::sleep_for(5ms);
  }
  ASSERT_TRUE(group->limit(plenty));
  EXPECT_THAT(run->log_text("launcher"),
              HasSubstr("was killed by signal 9 (SIGKILL) by the kernel, as memory had run out "
                        "(oom_kill in "));
  finish_as_undisturbed(
      *run, {.parallel = "tensor_parallel_size: 2", .requests = requests, .longest_answer = 64},
      60s * time_scale);
  group->remove();
}

}  // namespace
}  // namespace troupe::test
