#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "runtime/call/call_hub.hpp"
#include "runtime/task/task_messages.hpp"
#include "runtime/task/task_scheduler.hpp"

namespace troupe {

/// The tasks of a cluster: one in the driver, which has the only view of free resources, serves all
/// submitters, those of other processes by calls (ServiceMethod). It wraps a TaskScheduler in locks
/// and messages: a call for a batch of tasks to a worker, a call for a batch of answers back, so
/// that a task costs about a microsecond here. Callable from any thread.
class TaskService final : public CallTarget, public std::enable_shared_from_this<TaskService> {
 public:
  /// A worker process that has started: an actor beside which a TaskWorker is called.
  struct Started {
    ActorAddress actor;
    std::size_t node = 0;
  };
  using OnStarted = std::function<void(Result<Started>)>;
  /// What it needs of the cluster. None may block.
  struct Host {
    std::shared_ptr<CallHub> hub;
    std::shared_ptr<TaskRooms> rooms;
    std::function<void(const TaskScheduler::Orders::Start& start, OnStarted done)> start_worker;
    std::function<void(const ActorAddress& actor, bool kill)> stop_worker;
    TaskLimits limits;
    std::chrono::milliseconds patience;  ///< how long a submitter waits for room
  };

  /// Registers itself with the hub.
  static std::shared_ptr<TaskService> start(Host host);
  ~TaskService() override;

  /// Runs a task somewhere; `done` gets its answer, once, on any thread, and must not block. Waits
  /// while there are as many tasks as the limits allow; then, or at once in a callback,
  /// resource_exhausted. Other errors, by `done` as well: unschedulable, invalid_argument,
  /// cancelled, timed_out, actor_died with the cause. The ticket cancels it (CallHub::cancel): then
  /// `done` gets `cancelled` at once; a task that has not begun never runs, and one that runs sees
  /// ActorContext::is_cancelled and goes on to its end.
  CallTicket submit(SubmittedTask task, CallCompletion done);
  TaskScheduler::Counts counts() const;

  /// An actor has ended for good.
  void on_down(ActorId actor, const std::string& why);
  /// Resources may have become free, or a node come or gone.
  void on_room();
  /// Answers all tasks with `cancelled`. Idempotent.
  void stop();

  void deliver(IncomingCall call) override;
  void on_cancelled(const CancelToken& cancelled) override;

 private:
  explicit TaskService(Host host);
  /// Does what the scheduler has ordered; releases the lock.
  void act(std::unique_lock<std::mutex> lock);
  void start_worker(const TaskScheduler::Orders::Start& start);
  void send(const TaskBatch& batch, const ActorAddress& worker);
  void on_not_sent(TaskWorkerId worker, const std::vector<TaskId>& tasks, const Error& why);
  bool has_room(std::size_t bytes) const;
  void submit_now(SubmittedTask task, CallCompletion done, const CancelToken& token,
                  std::unique_lock<std::mutex> lock);
  void keep_time(const std::stop_token& stop);

  const Host host_;
  mutable std::mutex mutex_;
  TaskScheduler scheduler_;
  std::condition_variable room_;
  std::size_t waiting_ = 0;  ///< submitters
  std::unordered_map<TaskWorkerId, ActorAddress> workers_;
  std::unordered_map<ActorId, TaskWorkerId> worker_of_actor_;
  bool is_stopped_ = false;
  std::condition_variable_any time_;
  TaskScheduler::Clock::time_point wakes_at_{};  ///< the time keeper, if it is not at rest
  std::jthread keeper_;                          ///< started by the first task
};

}  // namespace troupe
