#include "runtime/process/child_process.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe {
namespace {

/// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void become_child(char* const* argv, int output_fd, int inherited_fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::signal(number, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = ::open("/dev/null", O_RDONLY);
  if (null_fd > 0) ::dup2(null_fd, 0);
  if (output_fd >= 0) {
    ::dup2(output_fd, 1);
    ::dup2(output_fd, 2);
  }
  unsigned first_to_close = 3;
  if (inherited_fd >= 0) {
    if (inherited_fd == 3) {
      ::fcntl(3, F_SETFD, 0);
    } else {
      ::dup2(inherited_fd, 3);
    }
    first_to_close = 4;
  }
  ::syscall(SYS_close_range, first_to_close, ~0U, 0U);
  ::execv("/proc/self/exe", argv);
  constexpr char text[] = "troupe: cannot execute /proc/self/exe again\n";
  [[maybe_unused]] const auto written = ::write(2, text, sizeof text - 1);
  ::_exit(127);
}

}  // namespace

std::string ExitStatus::describe() const {
  if (signalled) return fmt::format("was killed by signal {} ({})", code, signal_name(code));
  return fmt::format("exited with code {}", code);
}

std::string signal_name(int signal_number) {
  const char* abbreviation = ::sigabbrev_np(signal_number);
  if (abbreviation == nullptr) return fmt::format("signal {}", signal_number);
  return fmt::format("SIG{}", abbreviation);
}

Result<ChildProcess> ChildProcess::start(const ChildOptions& options) {
  UniqueFd output;
  if (!options.output_path.empty()) {
    output.reset(
        ::open(options.output_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    if (!output)
      return fail_errno(errno, fmt::format("cannot open the log file {}", options.output_path));
  }
  std::vector<char*> argv;
  for (const auto& argument : options.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "cannot fork a child process");
  if (pid == 0) become_child(argv.data(), output.get(), options.inherited_fd, parent);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    const int why = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return fail_errno(why, "cannot open a pidfd");
  }
  return ChildProcess(pid, std::move(pidfd));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      status_(other.status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    kill_now();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    status_ = other.status_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { kill_now(); }

void ChildProcess::kill_now() {
  if (pid_ < 0 || status_) return;
  signal(SIGKILL);
  (void)wait(std::chrono::seconds(5));
}

void kill_and_reap(std::span<ChildProcess* const> children, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const ChildProcess* child : children) child->signal(SIGKILL);
  for (ChildProcess* child : children) {
    const auto left = deadline - std::chrono::steady_clock::now();
    (void)child->wait(std::chrono::ceil<std::chrono::milliseconds>(left));
  }
}

bool ChildProcess::is_stopped() const {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pidfd_.get());
  return ::waitid(P_PIDFD, id, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void ChildProcess::signal(int signal_number) const {
  if (pidfd_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal_number, nullptr, 0);
}

std::optional<ExitStatus> ChildProcess::wait(std::chrono::milliseconds timeout) {
  if (status_) return status_;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ended{pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    siginfo_t info{};
    if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0) {
      return std::nullopt;
    }
    if (info.si_pid == 0) continue;
    status_ = ExitStatus{info.si_code != CLD_EXITED, info.si_status};
    return status_;
  }
}

}  // namespace troupe
