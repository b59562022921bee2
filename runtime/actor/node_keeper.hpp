#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/node/node_starter.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// How an agent ended that never ran begins with this.
inline constexpr const char* not_started = "could not be started: ";

/// Starts one agent and waits for its end, on a thread of its own that lasts as long as the agent
/// (a child dies with the thread that forked it) and sleeps meanwhile. Callable from any thread.
class NodeKeeper {
 public:
  static constexpr std::chrono::milliseconds a_moment{100};

  /// Calls `on_ended` exactly once, on the keeper's thread, with how the agent ended or why it
  /// could not be started ("(pid 7) was killed by signal 9 (SIGKILL)"). An agent that does not end
  /// within `kill_limit` of a SIGKILL, as one that waits for a dead file system, is left alone.
  NodeKeeper(std::shared_ptr<NodeStarter> starter, NodeTicket ticket, std::string log_path,
             std::function<void(const std::string& how)> on_ended,
             std::chrono::milliseconds kill_limit = std::chrono::seconds(5));
  ~NodeKeeper();  ///< kills the agent if it still runs
  NodeKeeper(const NodeKeeper&) = delete;
  NodeKeeper& operator=(const NodeKeeper&) = delete;

  /// Kills an agent whose link was lost, unless it ends by itself within `patience`: how it does
  /// tells more. `why` becomes part of how it ended.
  void give_up(std::string why, std::chrono::milliseconds patience = a_moment);
  void signal(int signal_number);
  /// Waits for on_ended to return; call after a signal.
  void join();

 private:
  void run(NodeStarter& starter, const NodeTicket& ticket, const std::string& log_path);
  std::string wait_for_end();
  std::chrono::milliseconds patience();
  std::string describe(const std::string& end) const;

  const std::function<void(const std::string&)> on_ended_;
  const std::chrono::milliseconds kill_limit_;
  UniqueFd given_up_;  ///< an eventfd, readable once it is given up or to be killed
  std::mutex mutex_;
  std::unique_ptr<NodeProcess> process_;
  int pending_signal_ = 0;  ///< requested before the agent was started
  std::string why_given_up_;
  std::chrono::milliseconds patience_ = a_moment;
  std::thread thread_;
};

}  // namespace troupe
