#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace troupe::launcher_test {

/// How a launcher ended and what it printed.
struct Ended {
  int code = -1;         ///< its exit status; 128 + the signal that killed it; -1: it never started
  bool in_time = false;  ///< false: it was killed when the time was over
  std::string out;
  std::string err;
  double seconds = 0;

  /// A description for the message of a failing test.
  std::string describe() const;
};

/// The launcher binary as a child process that leads its own process group and works in the folder
/// `work`. One thread at a time.
class LauncherProcess {
 public:
  /// Starts it with `arguments`; stdout and stderr go to files in the folder `prints`.
  LauncherProcess(const std::vector<std::string>& arguments, const std::filesystem::path& work,
                  std::filesystem::path prints);
  /// Kills and reaps the process unless wait() has.
  ~LauncherProcess();
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  /// Waits for the end, and kills the process after `limit`.
  Ended wait(std::chrono::milliseconds limit);

  pid_t pid() const { return pid_; }
  void signal(int number) const;        ///< to the process alone
  void signal_group(int number) const;  ///< to the process group, as a terminal's Ctrl-C does

  /// Waits until stderr or `file` holds `text`, `file` has at least `count` newlines, or `file`
  /// exists; false after `limit`, or if the process ended without it. Files are polled every few
  /// milliseconds: closing an inotify descriptor can take the kernel seconds on a busy machine.
  bool wait_for_stderr(const std::string& text, std::chrono::milliseconds limit) const;
  bool wait_for_text(const std::filesystem::path& file, const std::string& text,
                     std::chrono::milliseconds limit) const;
  bool wait_for_lines(const std::filesystem::path& file, std::size_t count,
                      std::chrono::milliseconds limit) const;
  bool wait_for_file(const std::filesystem::path& file, std::chrono::milliseconds limit) const;

 private:
  bool wait_until(const std::function<bool()>& met, std::chrono::milliseconds limit) const;

  std::filesystem::path prints_;
  std::chrono::steady_clock::time_point began_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
};

/// Processes that work in `folder` or below, each as "PID: command line"; zombies do not count.
/// Waits at most `limit` for them to end.
std::vector<std::string> processes_left_in(const std::filesystem::path& folder,
                                           std::chrono::milliseconds limit);

/// Sends a signal to the processes that work in `folder`.
void signal_processes_in(const std::filesystem::path& folder, int number);

/// The launcher's program file.
std::filesystem::path launcher_file();

}  // namespace troupe::launcher_test
