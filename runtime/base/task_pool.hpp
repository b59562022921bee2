#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// What a TaskPool runs. It is queued once at a time, so a pool's queue is as long as there are
/// tasks.
class PoolTask {
 public:
  virtual ~PoolTask() = default;
  virtual void run_task() noexcept = 0;
};

/// Threads that run tasks in the order in which they were submitted, `parallel` at a time. A task
/// may block: its thread then does not count, and another one takes its place, so tasks may wait
/// for each other in chains as long as there are threads (`max_threads`). The pool knows of a wait
///  - at once, if it is announced (BlockingScope: futures, credits, shared memory);
///  - after 10 to 20 ms in which tasks are queued, if the kernel says that the thread sleeps.
/// A task that computes for about a second while others are queued is left to the kernel's time
/// slices in the same way. When threads come back from their waits, more than `parallel` tasks may
/// run for a while; threads beyond `parallel` end after `idle_limit` without work.
///
/// A monitor thread starts all threads but the first, so these inherit nothing (CPUs, time slice,
/// name) of whoever submits or waits. Callable from any thread, with any lock held, but
/// for submit() after stop().
class TaskPool {
 public:
  struct Options {
    std::size_t parallel = 0;        ///< 0: std::thread::hardware_concurrency, and at least 2
    std::size_t max_threads = 4096;  ///< with those that wait; further tasks stay queued
    std::chrono::milliseconds idle_limit{10000};
    std::string name = "pool";  ///< of the threads; 15 characters at most
  };
  struct Counts {
    std::size_t threads = 0;  ///< without the monitor
    std::size_t running = 0;  ///< have work and do not wait
    std::size_t idle = 0;
    std::size_t queued = 0;  ///< tasks
  };

  explicit TaskPool(Options options);
  ~TaskPool();  ///< stop() without a wait
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// Starts the monitor and the first thread, unless they run. Before the first submit.
  /// resource_exhausted if they cannot be started; it may be tried again.
  Result<void> start();
  /// Queues a task. Never blocks or fails: a thread that cannot be started is tried again later.
  void submit(std::shared_ptr<PoolTask> task);
  /// True if no task waits for a thread; a look without a lock.
  bool has_empty_queue() const;
  Counts counts() const;
  /// Lets all threads end once nothing is queued, and waits at most `timeout`; false if some still
  /// run a task, which is left behind with its thread. What is submitted later is run by the
  /// threads that are left, else in submit() itself. Idempotent. Not for a thread of the pool, but
  /// for timeout 0.
  bool stop(std::chrono::milliseconds timeout);

 private:
  class State;
  const std::shared_ptr<State> state_;  ///< shared with the threads
};

}  // namespace troupe
