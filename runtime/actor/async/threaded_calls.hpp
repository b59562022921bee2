#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/actor/async/actor_executor.hpp"
#include "runtime/actor/async/concurrency_groups.hpp"
#include "runtime/base/task_pool.hpp"
#include "runtime/call/call_queue.hpp"
#include "runtime/call/incoming_call.hpp"

namespace troupe {

/// An actor whose methods run on several threads at the same time.
class ThreadedHost {
 public:
  virtual ~ThreadedHost() = default;
  /// Runs the method, and answers.
  virtual void run_call(IncomingCall& call) noexcept = 0;
  /// A thread has run its last call after ThreadedCalls::close().
  virtual void on_thread_left() = 0;
};

/// The calls of such an actor: each concurrency group has a queue, from which up to its limit of
/// threads of the process's pool take calls in order. Callable from any thread.
class ThreadedCalls final {
 public:
  struct Options {
    std::weak_ptr<ThreadedHost> host;  ///< owns this; held by the threads that run its calls
    std::shared_ptr<TaskPool> threads;
    std::size_t max_concurrency = 1;  ///< of the default group
    ClassConcurrency concurrency;
  };
  explicit ThreadedCalls(Options options);

  /// False if it was closed: the call is left as it is.
  bool deliver(IncomingCall& call);
  /// Takes the queued call of this token out; nothing if it is not queued.
  std::optional<IncomingCall> take(const CancelToken& cancelled);
  /// Has a thread of the default group run the task, in turn with calls.
  void post(std::shared_ptr<ActorTask> task);
  /// Lets nothing more begin: returns the queued calls, and drops posted tasks.
  std::vector<IncomingCall> close();
  /// No thread runs a call, or will.
  bool is_idle() const;

 private:
  /// A call, or a task in the place of one.
  struct Job : IncomingCall {
    std::shared_ptr<ActorTask> task{};
  };
  struct Lane {
    std::size_t limit = 1;
    std::size_t threads = 0;  ///< that run its jobs, or will
    CallQueue<Job> queue;
  };
  class Worker;

  /// Queues the job and has another thread come if there may be one; mutex_ is held by `lock`, and
  /// released.
  void add(std::size_t lane, Job job, std::unique_lock<std::mutex> lock);
  /// Runs some jobs; false if the thread is to leave.
  bool work(Lane& lane, ThreadedHost& host);

  const Options options_;
  mutable std::mutex mutex_;
  std::vector<Lane> lanes_;
  bool is_closed_ = false;
};

}  // namespace troupe
