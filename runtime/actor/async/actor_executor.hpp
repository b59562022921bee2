#pragma once

#include <memory>

namespace troupe {

/// Something that an actor's thread does between its calls: it resumes a coroutine, or runs what a
/// timer was set for.
class ActorTask {
 public:
  virtual ~ActorTask() = default;
  /// On the actor's thread of the moment; not after the actor's end.
  virtual void run_on_actor() noexcept = 0;
};

/// The place where what an actor does runs one at a time (in Asio's words a strand).
class ActorExecutor {
 public:
  virtual ~ActorExecutor() = default;
  /// Queues the task; drops it if the actor has ended. Never blocks. Any thread.
  virtual void post(std::shared_ptr<ActorTask> task) = 0;
};

}  // namespace troupe
