#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor/cluster.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

inline constexpr auto limit = 20s;

/// Sleeps, or misbehaves on request.
class Sleeper {
 public:
  explicit Sleeper(ActorContext& context) : context_(context) {}
  int pid();
  void sleep_ms(int ms);
  Result<void> hold_memory(const std::string& name, std::uint64_t bytes);
  void end_process(int code);
  /// Calls pid() of another actor; returns the name of the error's code, or "ok".
  std::string outcome_of_call(const ActorHandle<Sleeper>& other);

  static constexpr std::string_view actor_type = "Sleeper";
  using Methods = troupe::Methods<&Sleeper::pid, &Sleeper::sleep_ms, &Sleeper::hold_memory,
                                  &Sleeper::end_process, &Sleeper::outcome_of_call>;

 private:
  ActorContext& context_;
  std::vector<UniqueFd> held_;
};

/// A driver with two nodes and two actors each that writes its agents' and actors' pids to the file
/// `report` ("pid pid ... end marker") and then waits to be killed. Returns an exit code if it
/// cannot start.
int run_sub_driver(const std::string& report);

/// A sub-driver as a child of this process, and the pids of all processes of its job.
struct SubDriver {
  ChildProcess process;
  std::vector<int> pids;   ///< agents and actors
  std::string job_marker;  ///< prefix of the job's abstract sockets
};
Result<SubDriver> start_sub_driver();

/// True while a thread of the process runs; a zombie is not alive.
bool is_alive(int pid);
/// The state letter of /proc/pid/stat; 0 if there is no such process.
char process_state(int pid);
/// Waits at most `limit` until none of the pids is alive; returns those that still are.
std::vector<int> wait_until_gone(const std::vector<int>& pids, std::chrono::milliseconds limit);
/// The pids of processes whose command line begins with `begin` and whose parent is `parent`.
std::vector<int> children_called(const std::string& begin, int parent);
/// Lines of /proc/net/unix with the job's marker.
std::vector<std::string> abstract_sockets(const std::string& job_marker);

}  // namespace troupe::test
