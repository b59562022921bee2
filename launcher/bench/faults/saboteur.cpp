#include "launcher/bench/faults/saboteur.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <net/if.h>
#include <spawn.h>
#include <unistd.h>

#include "actors/worker/worker.hpp"
#include "launcher/bench/faults/process_table.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/process/stopped_thread.hpp"

namespace troupe {
namespace {

/// A worker that hangs is killed some 15 s later, or more on a machine with much to do.
constexpr std::chrono::seconds hang_limit{180};
constexpr std::chrono::milliseconds hang_look{10};

/// Arguments: seconds, then PID:START of each process to go on; one that has ended, and whose pid
/// another one may have, is left alone.
constexpr const char* thaw_script = R"(cd /
sleep "$1"
shift
for process in "$@"; do
  if read -r stat < "/proc/${process%:*}/stat"; then
    set -- ${stat##*) }
    [ "${20}" = "${process#*:}" ] && kill -CONT "${process%:*}"
  fi
done
)";

/// Arguments: seconds, device. A device that goes down loses its routes, and its IPv6 addresses if
/// the kernel is not told to keep them.
constexpr const char* link_script = R"(cd /
keeps=/proc/sys/net/ipv6/conf/$2/keep_addr_on_down
kept=$(cat "$keeps") && echo 1 >"$keeps"
routes=$(for family in 4 6; do ip -$family route show dev "$2" | sed "s/^/$family /"; done)
ip link set dev "$2" down
sleep "$1"
ip link set dev "$2" up
echo "$routes" | while read -r family route; do
  [ -n "$route" ] && ip -$family route replace $route dev "$2"
done
[ -n "$kept" ] && echo "$kept" >"$keeps"
)";

/// Starts a shell that outlives this process and all others of the job, in a session of its own.
Result<void> start_detached(const char* script, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"sh", "-c", script, "troupe: end of an outage"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, 0, 1);
  posix_spawn_file_actions_adddup2(&actions, 0, 2);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return {};
  return fail(ErrorCode::io, "cannot start /bin/sh: {}", std::strerror(error));
}

Result<void> send(int pid, int signal_number) {
  if (::kill(pid, signal_number) == 0) return {};
  return fail(errno == ESRCH ? ErrorCode::not_found : ErrorCode::io,
              "cannot send signal {} to process {}: {}", signal_number, pid, std::strerror(errno));
}

/// A process that has ended has no children and no memory, but a pid until the agent reaps it.
Result<void> check_is_sibling(int pid) {
  const auto entry = process_entry(pid);
  if (entry.ok() && entry->parent == ::getppid()) return {};
  return fail(ErrorCode::not_found, "process {} is none of the agent's", pid);
}

Result<StoppedThread> stop_steps(int pid) {
  TROUPE_CHECK(check_is_sibling(pid));
  TROUPE_TRY(const int thread, thread_named(pid, Worker::step_thread_name));
  return StoppedThread::stop(thread);
}

/// The agent's processes but this one.
std::vector<ProcessEntry> siblings() {
  auto processes = children_of(::getppid());
  std::erase_if(processes, [](const ProcessEntry& one) { return one.pid == ::getpid(); });
  return processes;
}

}  // namespace

Result<void> Saboteur::signal(int pid, int signal_number) {
  TROUPE_CHECK(check_is_sibling(pid));
  return send(pid, signal_number);
}

Result<void> Saboteur::hang(int pid) {
  TROUPE_TRY(StoppedThread stopped, stop_steps(pid));
  Deadline deadline(hang_limit);
  while (!stopped.is_gone()) {
    if (deadline.is_over()) {
      return fail(ErrorCode::timed_out, "worker {} was not killed within {} s although it hung",
                  pid, hang_limit.count());
    }
    std::this_thread::sleep_for(hang_look);
  }
  return {};
}

Result<void> Saboteur::check_hang(int pid) {
  const auto stopped = stop_steps(pid);
  if (stopped.ok()) return {};
  return fail(ErrorCode::unsupported,
              "--kinds hang cannot be done on {}: {}; it wants root there, or "
              "kernel.yama.ptrace_scope to be 0",
              context_.node(), stopped.error().message);
}

Result<void> Saboteur::kill_agent() { return send(::getppid(), SIGKILL); }

Result<void> Saboteur::kill_node() {
  const int agent = ::getppid();
  TROUPE_CHECK(send(agent, SIGSTOP));
  for (const ProcessEntry& process : siblings()) (void)send(process.pid, SIGKILL);
  return send(agent, SIGKILL);
}

Result<void> Saboteur::freeze_node(double seconds) {
  TROUPE_TRY(const ProcessEntry agent, process_entry(::getppid()));
  std::vector<ProcessEntry> processes = siblings();
  processes.push_back(agent);
  TROUPE_TRY(const ProcessEntry self, process_entry(::getpid()));
  std::vector<std::string> arguments{fmt::format("{}", seconds)};
  for (const ProcessEntry& process : processes) {
    arguments.push_back(fmt::format("{}:{}", process.pid, process.started));
  }
  arguments.push_back(fmt::format("{}:{}", self.pid, self.started));
  TROUPE_CHECK(start_detached(thaw_script, arguments));
  TROUPE_CHECK(send(agent.pid, SIGSTOP));
  for (const ProcessEntry& process : processes) (void)send(process.pid, SIGSTOP);
  return send(self.pid, SIGSTOP);
}

Result<void> Saboteur::check_link(const std::string& device) {
  std::string missing;
  if (::geteuid() != 0) missing = "only root may take a network device down";
  if (::if_nametoindex(device.c_str()) == 0) {
    missing = fmt::format("there is no network device {}", device);
  }
  const bool has_ip = std::filesystem::exists("/sbin/ip") || std::filesystem::exists("/bin/ip") ||
                      std::filesystem::exists("/usr/sbin/ip") ||
                      std::filesystem::exists("/usr/bin/ip");
  if (!has_ip) missing = "there is no program ip (iproute2)";
  if (missing.empty()) return {};
  return fail(ErrorCode::unsupported, "--kinds link cannot be done on {}: {}", context_.node(),
              missing);
}

Result<void> Saboteur::cut_link(const std::string& device, double seconds) {
  return start_detached(link_script, {fmt::format("{}", seconds), device});
}

Result<std::uint64_t> Saboteur::agent_memory() { return resident_bytes(::getppid()); }

void add_fault_actors(ActorTypes& types) { types.add<Saboteur>(); }

}  // namespace troupe
