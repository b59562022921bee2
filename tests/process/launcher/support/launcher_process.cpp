#include "tests/process/launcher/support/launcher_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ios>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_interval{5};

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

bool wait_for_end(int pidfd, Clock::time_point end) {
  pollfd descriptor{pidfd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&descriptor, 1, milliseconds_until(end));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const std::string& text = path.native();
  const std::string& head = folder.native();
  return text.starts_with(head) && (text.size() == head.size() || text[head.size()] == '/');
}

std::vector<pid_t> processes_in(const std::filesystem::path& folder) {
  std::vector<pid_t> found;
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", status)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto place = std::filesystem::read_symlink(entry.path() / "cwd", status);
    if (!status && is_below(place, folder)) found.push_back(std::stoi(name));
  }
  return found;
}

std::string command_of(pid_t pid) {
  std::string text;
  try {
    text = golden::file_bytes(fmt::format("/proc/{}/cmdline", pid));
  } catch (const std::ios_base::failure&) {
    text = "(ended meanwhile)";
  }
  std::replace(text.begin(), text.end(), '\0', ' ');
  return fmt::format("{}: {}", pid, text);
}

}  // namespace

std::string Ended::describe() const {
  return fmt::format("exit status {} after {:.2f} s{}\nstdout: {}\nstderr: {}", code, seconds,
                     in_time ? "" : " (killed: out of time)", out, err);
}

std::filesystem::path launcher_file() { return TROUPE_LAUNCHER; }

LauncherProcess::LauncherProcess(const std::vector<std::string>& arguments,
                                 const std::filesystem::path& work, std::filesystem::path prints)
    : prints_(std::move(prints)), began_(Clock::now()) {
  std::string program = launcher_file();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  constexpr int create = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, (prints_ / "out").c_str(), create, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, (prints_ / "err").c_str(), create, 0600);
  posix_spawn_file_actions_addchdir_np(&files, work.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  if (::posix_spawn(&pid_, program.c_str(), &files, &attributes, argv.data(), environ) != 0) {
    pid_ = -1;
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (pid_ > 0) pidfd_ = open_pidfd(pid_);
}

LauncherProcess::~LauncherProcess() {
  if (pid_ > 0) wait(milliseconds(0));
  if (pidfd_ >= 0) ::close(pidfd_);
}

Ended LauncherProcess::wait(milliseconds limit) {
  Ended ended;
  if (pid_ < 0) return ended;
  ended.in_time = wait_for_end(pidfd_, Clock::now() + limit);
  if (!ended.in_time) ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  ended.out = golden::file_bytes(prints_ / "out");
  ended.err = golden::file_bytes(prints_ / "err");
  return ended;
}

void LauncherProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void LauncherProcess::signal_group(int number) const {
  if (pid_ > 0) ::kill(-pid_, number);
}

bool LauncherProcess::wait_until(const std::function<bool()>& met, milliseconds limit) const {
  const auto end = Clock::now() + limit;
  bool ended = pid_ < 0;
  while (!met()) {
    if (ended || Clock::now() >= end) return false;
    ended = wait_for_end(pidfd_, std::min(end, Clock::now() + look_interval));
  }
  return true;
}

bool LauncherProcess::wait_for_stderr(const std::string& text, milliseconds limit) const {
  return wait_for_text(prints_ / "err", text, limit);
}

bool LauncherProcess::wait_for_text(const std::filesystem::path& file, const std::string& text,
                                    milliseconds limit) const {
  return wait_until([&] { return golden::file_bytes(file).find(text) != std::string::npos; },
                    limit);
}

bool LauncherProcess::wait_for_lines(const std::filesystem::path& file, std::size_t count,
                                     milliseconds limit) const {
  return wait_until(
      [&] {
        const std::string text = golden::file_bytes(file);
        return std::count(text.begin(), text.end(), '\n') >= static_cast<std::ptrdiff_t>(count);
      },
      limit);
}

bool LauncherProcess::wait_for_file(const std::filesystem::path& file, milliseconds limit) const {
  return wait_until([&] { return std::filesystem::exists(file); }, limit);
}

std::vector<std::string> processes_left_in(const std::filesystem::path& folder,
                                           milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::vector<std::string> left;
  for (const pid_t pid : processes_in(folder)) {
    const std::string command = command_of(pid);
    const int pidfd = open_pidfd(pid);
    if (pidfd < 0) continue;
    if (!wait_for_end(pidfd, end)) left.push_back(command);
    ::close(pidfd);
  }
  return left;
}

void signal_processes_in(const std::filesystem::path& folder, int number) {
  for (const pid_t pid : processes_in(folder)) ::kill(pid, number);
}

}  // namespace troupe::launcher_test
