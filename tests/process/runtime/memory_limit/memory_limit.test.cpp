#include "runtime/node/memory_limit.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/control_groups.hpp"
#include "tests/process/runtime/memory_limit/eater.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto limit = 20s;
constexpr std::int64_t mib = std::int64_t{1} << 20;

std::unique_ptr<Cluster> start() {
  auto cluster = Cluster::start({.nodes = {{"node0", 2, {}, 1024 * mib}}, .start_timeout = 60s});
  EXPECT_TRUE(cluster.ok()) << cluster.error().message;
  return *std::move(cluster);
}

/// How an actor ends that takes more than its 64 MiB; empty if it does not.
std::string end_of_a_glutton(Cluster& cluster) {
  const SpawnOptions options{.resources = {.memory_bytes = 64 * mib}, .limits_memory = true};
  const auto glutton = cluster.spawn<Eater>(options).get(limit);
  if (!glutton.ok()) return glutton.error().message;
  EXPECT_EQ(*glutton->call<&Eater::eat>(8).get(limit), 8U) << "there is room for so much";
  const Promise<std::string> told;
  const auto token =
      cluster.watch(*glutton, [told](const ActorDown& down) { told.complete(down.message); });
  auto eaten = glutton->call<&Eater::eat>(200);
  glutton->call<&Eater::digest_for_ms>(10000);  // it may be noticed a little later
  const auto end = told.future().get(limit);
  return end.ok() ? *end : "";
}

bool can_make_groups() {
  return MemoryLimit::create(fmt::format("try-{}", ::getpid()), 64 * mib).ok();
}

TEST(MemoryLimit, has_the_kernel_end_a_process_that_is_in_its_group) {
  auto group = MemoryLimit::create(fmt::format("{}-child", ::getpid()), 64 * mib);
  if (!group.ok()) GTEST_SKIP() << group.error().message;
  const std::string members = (*group)->members_file();
  EXPECT_FALSE((*group)->overrun());
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(members.c_str(), O_WRONLY);
    if (::write(file, "0", 1) != 1) ::_exit(1);
    for (int i = 0; i < 200; ++i) {
      void* const memory = ::mmap(nullptr, mib, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (memory == MAP_FAILED) ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_TRUE((*group)->overrun());
  const auto folder = (*group)->members_file().parent_path();
  group->reset();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(MemoryLimit, ends_the_actor_that_goes_beyond_and_no_other) {
  if (!can_make_groups()) GTEST_SKIP() << "no memory control group can be made here";
  const auto cluster = start();
  const auto other = cluster->spawn<Eater>({.resources = {.memory_bytes = 64 * mib}}).get(limit);
  ASSERT_TRUE(other.ok());
  const std::string end = end_of_a_glutton(*cluster);
  EXPECT_THAT(end, HasSubstr("by the kernel, as memory had run out"));
  EXPECT_THAT(end, HasSubstr(fmt::format("its limit of {} bytes", 64 * mib)));
  EXPECT_EQ(*other->call<&Eater::eat>(100).get(limit), 100U) << "it is not limited";
}

TEST(MemoryLimit, leaves_no_control_group_behind) {
  if (!can_make_groups()) GTEST_SKIP() << "no memory control group can be made here";
  {
    const auto cluster = start();
    const SpawnOptions options{.resources = {.memory_bytes = 512 * mib}, .limits_memory = true};
    const auto actor = cluster->spawn<Eater>(options).get(limit);
    ASSERT_TRUE(actor.ok()) << actor.error().message;
  }
  for (const MemoryGroup& group : memory_groups()) {
    std::error_code error;
    for (const auto& folder : {group.folder(), group.folder().parent_path()}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        EXPECT_FALSE(entry.path().filename().string().starts_with("troupe-")) << entry.path();
      }
    }
  }
}

TEST(MemoryLimit, is_watched_by_the_agent_where_there_are_no_control_groups) {
  if (std::getenv("TROUPE_TEST_WITHOUT_GROUPS") == nullptr) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can hide the control groups";
    const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command = fmt::format(
        "TROUPE_TEST_WITHOUT_GROUPS=1 unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec "
        "{} --gtest_filter=*is_watched_by_the_agent*'",
        program);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return;
  }
  ASSERT_FALSE(can_make_groups());
  const auto cluster = start();
  const std::string end = end_of_a_glutton(*cluster);
  EXPECT_THAT(end, HasSubstr("by its agent, as it used"));
  EXPECT_THAT(end, HasSubstr(fmt::format("its limit is {}", 64 * mib)));
}

TEST(MemoryLimit, is_refused_without_memory_and_for_a_shared_process) {
  const auto cluster = start();
  for (const SpawnOptions& options :
       {SpawnOptions{.limits_memory = true},
        SpawnOptions{.resources = {.memory_bytes = mib}, .process = "p", .limits_memory = true}}) {
    const auto refused = cluster->spawn<Eater>(options).get(limit);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace troupe::test
