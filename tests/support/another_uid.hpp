#pragma once

#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {

/// True if this process may act as another user.
inline bool can_change_uid() { return ::geteuid() == 0; }

/// Runs `task` in a child process of another user (nobody) and returns its result; false if it did
/// not exit normally. The task may only make system calls: it runs between fork and exit of a
/// process with threads.
inline bool as_another_uid(const std::function<bool()>& task, uid_t uid = 65534) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(uid) == 0 && task() ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace troupe::test
