#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/blocking.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/incoming_call.hpp"
#include "runtime/task/task_messages.hpp"

namespace troupe {

/// Runs the tasks of a worker process, one at a time, on a thread of its own, and reports to the
/// TaskService: answers in batches (at once when there is nothing more to do, within a millisecond
/// otherwise), and tasks that it gives back since the one before them takes longer than 5 ms or
/// waits. A task that is cancelled is not run; if it runs already, its context says so. Callable
/// from any thread.
class TaskWorker final : public CallTarget,
                         public std::enable_shared_from_this<TaskWorker>,
                         private BlockingObserver {
 public:
  struct Host {
    std::shared_ptr<CallHub> hub;
    ActorAddress service;             ///< the TaskService's
    std::function<void()> on_lost{};  ///< reports do not reach the service
  };

  /// Starts its two threads. `context`, for the tasks, outlives it. resource_exhausted without
  /// threads.
  static Result<std::shared_ptr<TaskWorker>> start(ActorContext& context, Host host);
  ~TaskWorker() override;  ///< stops
  /// Lets the task that runs end, drops others, and ends the threads. Idempotent.
  void stop();

  void deliver(IncomingCall call) override;

 private:
  using Clock = std::chrono::steady_clock;

  TaskWorker(ActorContext& context, Host host) : context_(context), host_(std::move(host)) {}
  void run();
  Result<Bytes> run_task(const TaskBatch::Item& item, const CancelToken& token);
  void take(TaskBatch batch);
  void cancel(TaskId task);
  /// Sends what is late; see the class.
  void help();
  /// Waits until something is to be done, or the objects that were reported are gone.
  void rest_helper(std::unique_lock<std::mutex>& lock);
  std::optional<Clock::time_point> next_help(Clock::time_point now) const;
  void wake_helper();
  void add_answer(TaskId task, Result<Bytes> answer);
  /// See TaskReport::has_objects. Takes a lock of the object store.
  bool has_objects() const;
  /// Sends answers and what else is in the report; the lock is released meanwhile.
  void send_report(std::unique_lock<std::mutex>& lock);
  void call_service(const TaskReport& report, std::function<void(const Error&)> on_failure);
  void lose_service(const Error& why);
  void begin_blocking() noexcept override;
  void end_blocking() noexcept override;

  ActorContext& context_;
  const Host host_;
  std::mutex mutex_;  ///< a leaf of the lock order
  std::condition_variable work_, help_;
  std::deque<TaskBatch::Item> queue_;
  TaskId running_ = 0;
  CancelToken token_;             ///< of the task that runs
  std::deque<TaskId> cancelled_;  ///< the latest that were not here: a batch may come late
  bool is_stopping_ = false;
  bool is_resting_ = false;    ///< run() waits
  bool helper_rests_ = false;  ///< help() waits for no time
  TaskReport report_;          ///< what has not been sent
  std::size_t report_bytes_ = 0;
  Clock::time_point oldest_answer_{}, sent_at_{};
  std::optional<Clock::time_point> running_since_, blocked_since_;
  bool told_blocked_ = false;
  /// When to see whether the objects are gone that were reported.
  std::optional<Clock::time_point> looks_at_;
  std::thread runner_, helper_;
};

}  // namespace troupe
