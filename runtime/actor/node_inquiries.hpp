#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/control/messages.hpp"

namespace troupe {

/// The driver's questions to its nodes about their processes (AskProcesses), and the answers.
/// Callable from any thread.
class NodeInquiries {
 public:
  /// Sends a question to a node's agent.
  using Send = std::function<Result<void>(std::size_t node, const AskProcesses& ask)>;
  explicit NodeInquiries(Send send) : send_(std::move(send)) {}

  struct Answer {
    std::size_t node = 0;
    /// What the node's steady clock is ahead of this process's; it is off by less than `off_ns`.
    std::int64_t ahead_ns = 0, off_ns = 0;
    NodeReport report;
  };
  /// Asks the nodes, and waits until all have answered or are lost, at most for `limit` and a
  /// little for the way. `record`: of start_timeline. Returns the answers; nodes that gave none are
  /// left out.
  std::vector<Answer> ask(const std::vector<std::size_t>& nodes, Inquiry what, ProcessId process,
                          std::chrono::milliseconds limit, std::chrono::milliseconds record = {});
  /// The same; `ask` has all but the number of the request.
  std::vector<Answer> ask(const std::vector<std::size_t>& nodes, AskProcesses ask);
  /// A node has answered. False if nobody has asked: these are last words of a process.
  bool take(std::size_t node, NodeReport report);
  /// A node is lost, and does not answer.
  void lose(std::size_t node);
  /// Ends all waits, also later ones.
  void stop();

 private:
  struct Open {
    std::map<std::size_t, std::chrono::steady_clock::time_point> awaited;  ///< node: asked when
    std::vector<Answer> answers;
  };

  const Send send_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Open> open_;  ///< by request
};

}  // namespace troupe
