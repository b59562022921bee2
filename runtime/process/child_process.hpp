#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// How a process ended.
struct ExitStatus {
  bool signalled = false;
  int code = 0;  ///< exit code, or signal number if signalled

  /// "exited with code 3" or "was killed by signal 9 (SIGKILL)".
  std::string describe() const;
};

/// How to start a child process.
struct ChildOptions {
  std::vector<std::string> arguments;  ///< argv, argv[0] included
  std::string output_path = {};        ///< stdout and stderr are appended to it; empty: inherited
  int inherited_fd = -1;  ///< becomes descriptor 3 of the child; all others are closed; -1: none
  int input_fd = -1;      ///< becomes its stdin; -1: /dev/null
  std::string program{};  ///< looked up in PATH unless it has a slash; empty: this one again
  int output_fd = -1;     ///< becomes its stdout and stderr in place of output_path
  int stdout_fd = -1;     ///< becomes its stdout; the others then hold for stderr alone
  std::vector<std::string> environment{};  ///< "NAME=value", beside or instead of the inherited
  std::vector<int> cpus{};                 ///< ids of the CPUs that it runs on; empty: inherited
  std::string group_file{};  ///< cgroup.procs of the control group that it is in; empty: inherited
};

/// A child that executes this same program again (/proc/self/exe), or another one, and cannot
/// outlive its parent.
///
/// The child gets SIGKILL when the *thread* that forked it ends (PR_SET_PDEATHSIG), so start must
/// be called on a thread that lives as long as the child may; comparing getppid closes the race
/// with a parent that dies before the child has set this. The child runs in its own process group
/// and ignores SIGINT, SIGTERM and SIGHUP, so that Ctrl-C, and what a scheduler sends to all
/// processes of a job, reach the driver alone. Signal mask and other handlers are reset. The
/// destructor kills and reaps. Not synchronised, except where said.
class ChildProcess {
 public:
  static Result<ChildProcess> start(const ChildOptions& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  /// Readable (poll) once the child has ended.
  int pidfd() const { return pidfd_.get(); }
  /// True while the child is stopped (SIGSTOP and the like).
  bool is_stopped() const;
  /// Sends a signal; no effect on a child that has ended. Callable from any thread.
  void signal(int signal_number) const;
  /// Waits at most `timeout` for the end and reaps; empty if the child still runs.
  std::optional<ExitStatus> wait(std::chrono::milliseconds timeout);
  /// Lets go of a child that does not end although it was killed: the destructor does not wait for
  /// it.
  void leave() { pid_ = -1; }

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void kill_now();

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<ExitStatus> status_;
};

/// Sends SIGKILL to all of them, then waits at most `timeout` in all and reaps them, so that their
/// deaths overlap.
void kill_and_reap(std::span<ChildProcess* const> children, std::chrono::milliseconds timeout);

/// The file that this process executes. io.
Result<std::string> own_program();

/// Where PATH has a program of this name; a name with a slash stays as it is. not_found.
Result<std::string> find_program(const std::string& name);

/// "SIGKILL" for 9 and so on; "signal 77" for unknown ones.
std::string signal_name(int signal_number);

}  // namespace troupe
