#include "runtime/process/process_mark.hpp"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;

ProcessMark own_mark() {
  auto mark = own_process_mark();
  if (!mark.ok()) throw std::runtime_error(mark.error().message);
  return *std::move(mark);
}

/// A child that waits to be killed, and its mark.
class Child {
 public:
  Child() {
    int told[2];
    if (::pipe(told) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto mark = own_process_mark();
      const std::uint64_t started = mark.ok() ? mark->started : 0;
      (void)!::write(told[1], &started, sizeof started);
      while (true) ::pause();
    }
    mark_ = own_mark();
    mark_.pid = pid_;
    if (::read(told[0], &mark_.started, sizeof mark_.started) != sizeof mark_.started) {
      throw std::runtime_error("the child says nothing");
    }
    ::close(told[0]);
    ::close(told[1]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const ProcessMark& mark() const { return mark_; }
  /// Kills it, but leaves it as a zombie.
  void kill() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void reap() {
    if (!is_reaped_) ::waitpid(pid_, nullptr, 0);
    is_reaped_ = true;
  }

 private:
  pid_t pid_ = -1;
  bool is_reaped_ = false;
  ProcessMark mark_;
};

TEST(ProcessMark, tells_whether_a_process_lives_is_a_zombie_or_gone) {
  EXPECT_EQ(has_ended(own_mark()), std::optional(false));
  Child child;
  EXPECT_EQ(has_ended(child.mark()), std::optional(false));
  child.kill();
  EXPECT_EQ(has_ended(child.mark()), std::optional(true)) << "a zombie";
  child.reap();
  EXPECT_EQ(has_ended(child.mark()), std::optional(true));
}

TEST(ProcessMark, is_not_that_of_a_later_process_with_the_same_pid) {
  ProcessMark earlier = own_mark();
  earlier.started -= 1;
  EXPECT_EQ(has_ended(earlier), std::optional(true));
}

TEST(ProcessMark, of_an_earlier_boot_of_this_machine_has_ended) {
  ProcessMark mark = own_mark();
  ASSERT_FALSE(mark.machine.empty()) << "this machine has no /etc/machine-id";
  mark.boot = "11111111-2222-3333-4444-555555555555";
  EXPECT_EQ(has_ended(mark), std::optional(true));
}

TEST(ProcessMark, of_another_machine_or_namespace_is_not_known) {
  ProcessMark elsewhere = own_mark();
  elsewhere.boot = "11111111-2222-3333-4444-555555555555";
  elsewhere.machine = "another";
  EXPECT_EQ(has_ended(elsewhere), std::nullopt);
  elsewhere.machine = "";  // a machine without an id is none that is known again
  EXPECT_EQ(has_ended(elsewhere), std::nullopt);
  ProcessMark contained = own_mark();
  contained.namespaces = "pid:[1] time:[2]";
  contained.pid = 1;
  EXPECT_EQ(has_ended(contained), std::nullopt);
  EXPECT_FALSE(wait_for_end(contained, milliseconds(10)));
}

TEST(ProcessMark, that_is_broken_is_not_known) {
  EXPECT_EQ(has_ended({}), std::nullopt);
  ProcessMark mark = own_mark();
  for (const int pid : {0, -1}) {
    mark.pid = pid;
    EXPECT_EQ(has_ended(mark), std::nullopt) << pid;
  }
  mark = own_mark();
  mark.boot = "";
  EXPECT_EQ(has_ended(mark), std::nullopt);
}

TEST(ProcessMark, is_read_right_whatever_the_program_calls_itself) {
  const ProcessMark before = own_mark();
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data());
  for (const char* hostile : {") Z 1 2 3", "(x) 0 0", "a b\nc", ")"}) {
    ::prctl(PR_SET_NAME, hostile);
    EXPECT_EQ(own_mark(), before) << hostile;
    EXPECT_EQ(has_ended(before), std::optional(false)) << hostile;
  }
  ::prctl(PR_SET_NAME, name.data());
}

TEST(ProcessMark, is_waited_for_no_longer_than_it_lives) {
  Child child;
  EXPECT_FALSE(wait_for_end(child.mark(), milliseconds(20)));
  child.kill();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(wait_for_end(child.mark(), std::chrono::seconds(10)));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

}  // namespace
}  // namespace troupe
