#include "runtime/process/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/full_disk.hpp"

namespace troupe {
namespace {

/// The descriptors of a child, -1 for those that it does not get.
struct ChildFds {
  int input = -1;
  int output = -1;
  int inherited = -1;
  int only_stdout = -1;
  int group = -1;  ///< cgroup.procs
};

/// The arguments of execve.
struct Program {
  const char* path;
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cpus;  ///< null: those of the parent's thread
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> inherited_environment(const std::vector<std::string>& replaced) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_replaced = std::ranges::any_of(replaced, [&](const std::string& other) {
      return std::string_view(other).substr(0, other.find('=')) == name;
    });
    if (!is_replaced) all.emplace_back(text);
  }
  return all;
}

/// No signal reaches the calling thread while this lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// Runs between vfork and exec, in the memory of the parent, whose thread waits meanwhile:
/// async-signal-safe calls only, and nothing of the parent's is changed.
[[noreturn]] void become_child(const Program& program, ChildFds fds, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  if (fds.group >= 0 && ::write(fds.group, "0", 1) != 1) {
    constexpr char text[] = "troupe: a child process cannot enter its control group\n";
    [[maybe_unused]] const auto written = ::write(2, text, sizeof text - 1);
    ::_exit(127);
  }
  if (program.cpus != nullptr) ::sched_setaffinity(0, sizeof *program.cpus, program.cpus);
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::signal(number, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = fds.input >= 0 ? fds.input : ::open("/dev/null", O_RDONLY);
  if (input > 0) ::dup2(input, 0);
  if (fds.output >= 0) {
    ::dup2(fds.output, 1);
    ::dup2(fds.output, 2);
  }
  if (fds.only_stdout >= 0) ::dup2(fds.only_stdout, 1);
  unsigned first_to_close = 3;
  if (fds.inherited >= 0) {
    if (fds.inherited == 3) {
      ::fcntl(3, F_SETFD, 0);
    } else {
      ::dup2(fds.inherited, 3);
    }
    first_to_close = 4;
  }
  ::syscall(SYS_close_range, first_to_close, ~0U, 0U);
  ::execve(program.path, program.arguments, program.environment);
  constexpr char text[] = "troupe: cannot execute the program of a child process\n";
  [[maybe_unused]] const auto written = ::write(2, text, sizeof text - 1);
  ::_exit(127);
}

/// Returns the child's id, or -1. vfork copies no page tables: fork does so under a lock of the
/// whole process, and if it loses its core meanwhile, all other threads stop at their next page
/// fault. On a machine with 500 runnable processes agents were silent for 1.8 s and were given up.
pid_t make_child(const Program& program, ChildFds fds, pid_t parent) {
  const SignalsBlocked no_handler_runs_in_the_child;
  // posix_spawn cannot have the child die with its parent.
  const pid_t pid = ::vfork();  // NOLINT(bugprone-unsafe-functions)
  if (pid == 0) become_child(program, fds, parent);
  return pid;
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

Result<std::string> own_program() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::io, "cannot read /proc/self/exe: {}", error.message());
  return program.string();
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view folders = path == nullptr ? "/usr/bin:/bin" : path;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    std::string file = fmt::format("{}/{}", folders.substr(0, end), name);
    if (::access(file.c_str(), X_OK) == 0) return file;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return fail(ErrorCode::not_found, "there is no program '{}' in PATH", name);
}

Result<ChildProcess> ChildProcess::start(const ChildOptions& options) {
  std::string program = "/proc/self/exe";
  if (!options.program.empty()) {
    TROUPE_TRY(program, find_program(options.program));
  }
  UniqueFd output;
  if (!options.output_path.empty()) {
    output.reset(
        ::open(options.output_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    // A log for which there is no room is no reason not to run.
    if (!output && is_full_disk(errno)) output.reset(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!output)
      return fail_errno(errno, fmt::format("cannot open the log file {}", options.output_path));
  }
  std::vector<std::string> environment = inherited_environment(options.environment);
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  const std::vector<char*> argv = pointers_to(options.arguments), envp = pointers_to(environment);

  UniqueFd group;
  if (!options.group_file.empty()) {
    group.reset(::open(options.group_file.c_str(), O_WRONLY | O_CLOEXEC));
    if (!group) return fail_errno(errno, fmt::format("cannot open {}", options.group_file));
  }
  const pid_t parent = ::getpid();
  const ChildFds fds{options.input_fd, output ? output.get() : options.output_fd,
                     options.inherited_fd, options.stdout_fd, group.get()};
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) CPU_SET(cpu, &cpus);
  const pid_t pid = make_child(
      {program.c_str(), argv.data(), envp.data(), options.cpus.empty() ? nullptr : &cpus}, fds,
      parent);
  if (pid < 0) return fail_errno(errno, "cannot fork a child process");
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
    if (info.si_pid == 0) {  // a tracer has not looked at its end yet
      if (left.count() <= 0) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    status_ = ExitStatus{info.si_code != CLD_EXITED, info.si_status};
    return status_;
  }
}

}  // namespace troupe
