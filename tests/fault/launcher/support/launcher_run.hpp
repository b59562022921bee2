#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::test {

using Clock = std::chrono::steady_clock;

/// One process of a job.
struct JobProcess {
  int pid = 0;
  std::string role;  ///< driver, agent, executor, worker-0 ...; empty between fork and exec
};

/// What was observed after a process of a job was killed or stopped. Milliseconds from then.
struct Aftermath {
  std::optional<double> reported_ms;  ///< until the final message was on stderr
  std::optional<double> gone_ms;      ///< until no process or socket of the job was left
  std::vector<JobProcess> left;       ///< the processes that still exist, if any
  std::optional<int> exit_code;       ///< the launcher's; none if it was killed or has not ended
};

/// A launcher on the demo's model, by default on two workers, with a batch that runs for a minute
/// or more; a child of this process, in a new folder that is its working directory and so marks the
/// processes of its job. The destructor kills the rest and removes the folder.
class LauncherRun {
 public:
  /// `parallel`: the keys of the YAML's section of this name. `sections`: more of the YAML; unless
  /// it says otherwise, a lost process ends the job. `body`: fields of all requests, as JSON, over
  /// those that they have anyway; under "only" those of single ones, by custom_id.
  static Result<LauncherRun> start(std::string_view parallel = "tensor_parallel_size: 2",
                                   int requests = lines, int longest_answer = 200,
                                   std::string_view sections = no_restarts,
                                   std::string_view body = "{}");
  static constexpr std::string_view no_restarts = "restart: {max: 0}\n";
  /// Starts the launcher again with the same command, after its end.
  Result<void> start_again();
  LauncherRun(LauncherRun&& other) noexcept;
  LauncherRun& operator=(LauncherRun&&) = delete;
  ~LauncherRun();

  /// The living processes of the job now; zombies do not count.
  std::vector<JobProcess> processes() const;
  /// Waits at most `limit` for a process of that role; 0 if none comes.
  int wait_for_role(std::string_view role, std::chrono::milliseconds limit) const;
  /// Waits at most `limit` until the output has that many lines.
  bool wait_for_answers(std::size_t lines, std::chrono::milliseconds limit) const;

  /// Names of the abstract unix sockets that the job's processes hold now.
  std::vector<std::string> abstract_sockets() const;
  /// The addresses where the job's processes listen now.
  struct Listeners {
    std::vector<std::string> abstract;  ///< names without the leading '@'
    std::vector<std::uint16_t> ports;   ///< of TCP
  };
  Listeners listeners() const;

  /// Watches until all processes and `sockets` are gone, at most `limit`.
  Aftermath watch(Clock::time_point since, const std::vector<std::string>& sockets,
                  std::chrono::milliseconds limit);

  std::string stderr_text() const;
  /// The log of a process, by its role; the driver's is "launcher".
  std::string log_text(std::string_view role) const;
  std::string report_text() const;
  /// Lines in the logs of all its processes and on stderr.
  std::size_t log_lines() const;
  /// The port of its metrics, if the configuration asks for it; 0 until it is open.
  int metrics_port() const;
  std::string output_text() const;
  static constexpr int lines = 2000;  ///< default length of the request file

  /// Paths in the folder, relative to it, that no launcher should leave there.
  std::vector<std::string> unexpected_files() const;

 private:
  LauncherRun(std::filesystem::path folder, int pid) : folder_(std::move(folder)), pid_(pid) {}
  /// The processes' descriptors, as /proc names them.
  std::set<std::string> descriptors() const;
  /// True once the launcher has ended; reaps it.
  bool ended();

  std::filesystem::path folder_;
  int pid_ = 0;
  std::optional<int> wait_status_;
};

/// Returns those of `names` that /proc/net/unix lists now.
std::vector<std::string> still_bound(const std::vector<std::string>& names);

/// Checks that all lines are whole JSON with a unique custom_id; returns the number of lines, or an
/// error.
Result<std::size_t> count_whole_answers(const std::string& output);

}  // namespace troupe::test
