#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_terms.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/call/remaining_time.hpp"
#include "runtime/task/task_function.hpp"
#include "runtime/task/task_options.hpp"

namespace troupe {

/// Identifies a task of a cluster; never reused.
using TaskId = std::uint64_t;
/// Identifies a worker process of a cluster; never reused.
using TaskWorkerId = std::uint64_t;

/// The call targets of tasks stand beside actors: the worker's id is that of its actor with this
/// bit, the service's is the bit alone.
inline constexpr ActorId task_target_bit = ActorId{1} << 62;
inline constexpr ActorId task_service_id = task_target_bit;
inline ActorAddress task_target_of(ActorAddress actor) {
  actor.id |= task_target_bit;
  return actor;
}
/// The TaskService at the driver's endpoint.
inline ActorAddress task_service_at(const std::string& endpoint) {
  return {task_service_id, endpoint, "tasks", "troupe.TaskService"};
}

/// Method numbers of the TaskService.
enum class ServiceMethod : std::uint16_t { submit, report };
/// Method numbers of a TaskWorker, which answers both at once: `run` takes a TaskBatch, `cancel`
/// the TaskId of one that nobody waits for any more.
enum class WorkerMethod : std::uint16_t { run, cancel };

/// A task on its way from another process to the service; answered with the task's answer.
struct SubmittedTask {
  TaskOptions options;
  TaskFunctionId function = 0;
  Bytes arguments;
  template <class Archive>
  void fields(Archive& archive) {
    archive(options, function, arguments);
  }
};

/// Tasks for a worker, to be run in order.
struct TaskBatch {
  struct Item {
    TaskId task = 0;
    TaskFunctionId function = 0;
    Bytes arguments;
    CallDeadline deadline = no_deadline;  ///< travels as the time that remains
    template <class Archive>
    void fields(Archive& archive) {
      std::uint32_t remaining = remaining_ms(deadline);
      archive(task, function, arguments, remaining);
      if constexpr (Archive::decoding) deadline = deadline_of(remaining);
    }
  };
  TaskWorkerId worker = 0;
  std::vector<Item> items{};
  template <class Archive>
  void fields(Archive& archive) {
    archive(worker, items);
  }
};

/// What has become of a worker's tasks.
struct TaskReport {
  struct Answer {
    TaskId task = 0;
    bool ok = false;
    ErrorCode code = ErrorCode::internal;  ///< if not ok: `answer` is the message
    Bytes answer;
    template <class Archive>
    void fields(Archive& archive) {
      archive(task, ok, code, answer);
    }

    static Answer of(TaskId task, Result<Bytes> result) {
      if (result.ok()) return {task, true, ErrorCode::internal, *std::move(result)};
      const auto text = std::as_bytes(std::span(result.error().message));
      return {task, false, result.error().code, Bytes(text.begin(), text.end())};
    }
    /// Moves the result out.
    Result<Bytes> take() {
      if (ok) return std::move(answer);
      return Error{code, std::string(reinterpret_cast<const char*>(answer.data()), answer.size())};
    }
  };
  TaskWorkerId worker = 0;
  std::vector<Answer> answers{};
  std::uint64_t busy_ns = 0;  ///< what these took in all
  /// Tasks that it has not begun and gives back, as the one before them takes long.
  std::vector<TaskId> returned{};
  bool is_blocked = false;  ///< the task that runs waits for something (BlockingScope)
  /// Its process has objects that would be lost with it: results of tasks, and what these have put.
  bool has_objects = false;
  template <class Archive>
  void fields(Archive& archive) {
    archive(worker, answers, busy_ns, returned, is_blocked, has_objects);
  }
};

}  // namespace troupe
