#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/call_completion.hpp"
#include "runtime/node/resource_room.hpp"
#include "runtime/task/task_messages.hpp"

namespace troupe {

/// Room for tasks on the nodes, shared with actors.
class TaskRooms {
 public:
  struct Room {
    std::size_t node = 0;
    ResourceRoom held;
  };
  virtual ~TaskRooms() = default;
  /// Reserves it on that node or, if `node` is empty, on any; none if it is not free now.
  virtual std::optional<Room> reserve(const Resources& asked, const std::string& node) = 0;
  virtual void release(const Room& room) = 0;
  /// Errors: unschedulable if no node that is there has so much in all, whatever is free now;
  /// invalid_argument for negative amounts.
  virtual Result<void> check(const Resources& asked, const std::string& node) const = 0;
  /// How many workers the node may have beside those whose tasks wait.
  virtual std::size_t max_workers(std::size_t node) const = 0;
};

/// Decides which worker process runs which task, and when workers start and end. A plain state
/// machine: no I/O, no clock (times are arguments), no threads. A decision about a task takes
/// constant time; one that needs a reservation that of TaskRooms. So does anything else that
/// happens, however many shapes wait for room: a few of them are looked at, those that have waited
/// longest first, and the others soon after, some each millisecond (next_due, on_time).
///
/// Tasks with the same resources and node have one queue, a Shape. A worker is leased to a shape:
/// the resources of one task are reserved for it as long as it has such tasks. It is given tasks
/// ahead, for about `ahead`, as tasks of the shape have taken so far, and a fair share of the queue
/// at most. A worker whose task takes long gives the others back (on_report). A lease lasts for
/// `max_lease` if other shapes wait for room. A worker whose task waits (as for tasks that it has
/// submitted) loses its lease, so that others can run meanwhile.
class TaskScheduler {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::chrono::nanoseconds ahead = std::chrono::milliseconds(2);
    std::size_t max_ahead = 256;                          ///< tasks
    std::size_t max_ahead_bytes = std::size_t{16} << 20;  /// of arguments; or one task of any size
    std::size_t refill = 32;  ///< a busy worker gets no fewer tasks, unless it asks
    std::chrono::milliseconds max_lease{20};
    std::chrono::milliseconds idle_limit{60000};
    std::chrono::milliseconds device_idle_limit{1000};
    std::size_t max_workers = 1024;  ///< on a node, with those whose tasks wait
    /// Shapes that wait for room are looked at when something happens, and in each turn after it.
    std::size_t looks_at_once = 8;
    std::size_t looks_in_turn = 64;
    std::chrono::milliseconds look_turn{1};
  };

  /// Tasks that share a queue and workers.
  struct Shape;

  struct Task {
    TaskId id = 0;
    TaskFunctionId function = 0;
    std::string name;
    Bytes arguments;
    std::int32_t max_retries = 0;
    std::int32_t retries_left = 0;
    std::optional<Clock::time_point> deadline{};
    CallCompletion done;      ///< empty once it is answered
    bool runs_alone = false;  ///< a worker that had it died
    TaskWorkerId worker = 0;  ///< 0: it is queued
    Shape* shape = nullptr;
  };

  /// What is to be done; each is done once, in any order among workers.
  struct Orders {
    struct Start {
      TaskWorkerId worker = 0;
      std::optional<std::size_t> node{};  ///< none: where there is room for `resources`
      Resources resources{};              ///< the worker's own: with devices
      std::string node_name{};            ///< if `node` is not given; may be empty
    };
    struct Answer {
      CallCompletion done;
      Result<Bytes> answer;
    };
    std::vector<Start> starts;
    std::vector<TaskBatch> batches;
    /// A task that is with a worker and has been answered.
    struct Cancel {
      TaskWorkerId worker = 0;
      TaskId task = 0;
    };
    std::vector<Cancel> cancels;
    std::vector<TaskWorkerId> stops;
    std::vector<Answer> answers;
  };

  /// `rooms` outlives it.
  TaskScheduler(TaskRooms& rooms, Limits limits);
  ~TaskScheduler();

  /// Queues a task, or answers it with the error of TaskRooms::check. `id`, `worker` and `shape`
  /// are set here. Returns its id.
  TaskId submit(Task task, const Resources& resources, const std::string& node,
                Clock::time_point now);
  /// Answers a task with `cancelled`: one that is queued does not run, a worker that has it is told
  /// (Orders::cancels). False if it is answered.
  bool cancel(TaskId task);
  void on_started(TaskWorkerId worker, std::size_t node, Clock::time_point now);
  /// The worker could not be started. After `resource_exhausted` it is tried again when there is
  /// room, and at once, a few times in a row, if its process or node has died; the tasks that wait
  /// get any other error, if no other worker can take them.
  void on_start_failed(TaskWorkerId worker, const Error& why, Clock::time_point now);
  void on_report(TaskReport report, Clock::time_point now);
  /// The worker is gone; `why` for people.
  void on_lost(TaskWorkerId worker, const std::string& why, Clock::time_point now);
  /// Something has become free, or a node has come or gone.
  void on_room(Clock::time_point now);
  void on_time(Clock::time_point now);
  /// When on_time is to be called; none while nothing waits for time.
  std::optional<Clock::time_point> next_due() const;
  /// The same for what may have become due earlier by the latest event: shapes that are to be
  /// looked at.
  std::optional<Clock::time_point> next_look() const {
    return has_looks_due() ? std::optional(next_look_) : std::nullopt;
  }
  /// Answers all tasks with this error; starts nothing any more.
  void stop(const Error& why);

  Orders take_orders() { return std::exchange(orders_, {}); }
  bool has_orders() const {
    return !orders_.answers.empty() || !orders_.batches.empty() || !orders_.cancels.empty() ||
           !orders_.starts.empty() || !orders_.stops.empty();
  }

  struct Counts {
    std::size_t tasks = 0;  ///< not answered
    std::size_t bytes = 0;  ///< of their arguments
    std::size_t workers = 0;
    std::size_t idle_workers = 0;
  };
  Counts counts() const { return {index_.size(), bytes_, workers_.size(), idle_count_}; }

 private:
  using Tasks = std::list<Task>;
  struct Worker;
  using Hungry = std::list<Worker*>;
  using Idle = std::list<Worker*>;

  struct Worker {
    TaskWorkerId id = 0;
    std::size_t node = 0;
    bool is_ready = false;
    bool has_devices = false;  ///< is its shape's for good
    bool is_slow = false;      ///< gave tasks back: gets none before the one that runs ends
    bool is_blocked = false;   ///< the task waits; it has no lease
    bool has_objects = false;  ///< is not stopped, as they would be lost
    Shape* shape = nullptr;    ///< that it is leased to
    std::optional<TaskRooms::Room> room{};
    Clock::time_point since{};  ///< of its lease, or since it is idle
    std::uint64_t begun = 0;    ///< when its start was ordered, in changes_
    Tasks flight{};             ///< in the order of its batches
    std::size_t flight_bytes = 0;
    std::optional<Hungry::iterator> hungry{};
    std::optional<Idle::iterator> idle{};
    std::optional<Idle::iterator> unused{};  ///< in unused_
  };

  /// Refers to the members of a shape, or of what looks for one.
  struct ShapeKey {
    const Resources* resources = nullptr;
    const std::string* node = nullptr;
  };
  struct ShapeHash {
    std::size_t operator()(const ShapeKey& key) const;
  };
  struct ShapeEqual {
    bool operator()(const ShapeKey& a, const ShapeKey& b) const;
  };

  Shape& shape_of(const Resources& resources, const std::string& node);
  void schedule(Shape& shape, Clock::time_point now);
  bool lease_one(Shape& shape, Clock::time_point now);
  void wake(Worker& worker);  ///< it rests no more
  Worker& start_worker(std::optional<std::size_t> node);
  void attach(Worker& worker, Shape& shape, Clock::time_point now);
  /// Gives it tasks of its shape, as many as it should have; false if it has none after that.
  bool give(Worker& worker);
  std::size_t window(const Shape& shape) const;
  void set_hungry(Worker& worker, bool hungry);
  /// Its flight has changed: gives it more, or ends its lease.
  void settle(Worker& worker, Clock::time_point now);
  void end_lease(Worker& worker);
  void rest(Worker& worker, Clock::time_point now);
  void forget(Worker& worker);
  void set_waiting(Shape& shape, bool waiting);
  /// Something was given back that shapes may wait for.
  void try_waiting(Clock::time_point now);
  /// Tries the first of the shapes that are due for a look.
  void look(std::size_t shapes, Clock::time_point now);
  void look_in_turn(Clock::time_point now);
  bool has_looks_due() const { return waiting_.begin() != first_looked_at_; }
  void set_unused(Worker& worker, bool unused);
  void drop_if_unused(Shape& shape);
  /// Queues it, or forgets it if it is answered: then false.
  bool queue_again(Worker& worker, Tasks::iterator task);
  void answer(Task& task, Result<Bytes> answer);
  /// Removes it from all but the list that it is in.
  void unlist(Task& task);
  /// Answers a task: one that is queued is removed, any other goes on in its worker, which is told.
  void end_early(Tasks::iterator task, Error why);
  void fail_queue(Shape& shape, const Error& why);

  TaskRooms& rooms_;
  const Limits limits_;
  Orders orders_;
  bool is_stopped_ = false;
  TaskId next_task_ = 1;
  TaskWorkerId next_worker_ = 1;
  std::size_t bytes_ = 0;
  std::unordered_map<TaskId, Tasks::iterator> index_;
  std::unordered_map<ShapeKey, std::unique_ptr<Shape>, ShapeHash, ShapeEqual> shapes_;
  Shape* last_shape_ = nullptr;
  /// Shapes for which there was no room, the oldest first. Those from first_looked_at_ on have been
  /// looked at since something was given back.
  std::list<Shape*> waiting_;
  std::list<Shape*>::iterator first_looked_at_ = waiting_.end();
  Clock::time_point next_look_{};
  std::uint64_t changes_ = 1;  ///< of what the nodes have
  std::unordered_map<TaskWorkerId, std::unique_ptr<Worker>> workers_;
  /// Workers without devices of a node.
  struct NodeWorkers {
    std::size_t all = 0;
    std::size_t blocked = 0;
    Idle idle{};  ///< those that rest longest first

    /// The one that is stopped next; null if none may be.
    Worker* next_to_stop() const;
  };
  std::unordered_map<std::size_t, NodeWorkers> nodes_;
  std::size_t idle_count_ = 0;
  Idle
      unused_;  ///< workers with devices that have no tasks, those that have had none longest first
  std::set<std::pair<Clock::time_point, TaskId>> deadlines_;
};

}  // namespace troupe
