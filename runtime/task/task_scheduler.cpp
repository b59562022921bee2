#include "runtime/task/task_scheduler.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/task/task_shape.hpp"

namespace troupe {
namespace {

/// Shapes without tasks that are kept, with what is known of their tasks.
constexpr std::size_t kept_shapes = 64;

}  // namespace

// Submission, leases and what workers are given.

TaskScheduler::TaskScheduler(TaskRooms& rooms, Limits limits) : rooms_(rooms), limits_(limits) {}
TaskScheduler::~TaskScheduler() = default;

TaskScheduler::Shape& TaskScheduler::shape_of(const Resources& resources, const std::string& node) {
  const ShapeKey asked{&resources, &node};
  if (last_shape_ != nullptr && ShapeEqual()(last_shape_->key(), asked)) return *last_shape_;
  const auto found = shapes_.find(asked);
  if (found != shapes_.end()) return *(last_shape_ = found->second.get());
  auto made = std::make_unique<Shape>(Shape{resources, node});
  last_shape_ = made.get();
  shapes_.emplace(last_shape_->key(), std::move(made));
  return *last_shape_;
}

void TaskScheduler::drop_if_unused(Shape& shape) {
  if (!shape.is_unused()) return;
  set_waiting(shape, false);
  if (shapes_.size() <= kept_shapes) return;
  if (last_shape_ == &shape) last_shape_ = nullptr;
  shapes_.erase(shapes_.find(shape.key()));
}

TaskId TaskScheduler::submit(Task task, const Resources& resources, const std::string& node,
                             Clock::time_point now) {
  task.id = next_task_++;
  const TaskId id = task.id;
  if (is_stopped_) {
    orders_.answers.push_back(
        {std::move(task.done), fail(ErrorCode::cancelled, "the cluster is shutting down")});
    return id;
  }
  Shape& shape = shape_of(resources, node);
  if (shape.is_unused()) {  // otherwise it was looked at
    if (auto fits = rooms_.check(resources, node); !fits.ok()) {
      orders_.answers.push_back({std::move(task.done), std::move(fits).error()});
      drop_if_unused(shape);
      return id;
    }
    shape.checked = changes_;
  }
  task.worker = 0;
  task.shape = &shape;
  ++shape.tasks;
  bytes_ += task.arguments.size();
  if (task.deadline) deadlines_.emplace(*task.deadline, id);
  shape.queue.push_back(std::move(task));
  index_.emplace(id, std::prev(shape.queue.end()));
  if (!shape.hungry.empty()) {
    Worker& worker = *shape.hungry.front();
    if (worker.flight.empty() || shape.queue.size() >= limits_.refill) give(worker);
  }
  if (!shape.is_waiting) schedule(shape, now);
  return id;
}

bool TaskScheduler::cancel(TaskId id) {
  const auto found = index_.find(id);
  if (found == index_.end() || !found->second->done) return false;
  const Tasks::iterator task = found->second;
  end_early(task, fail(ErrorCode::cancelled, "task {} was cancelled{}", task->name,
                       task->worker == 0 ? " before it began" : ""));
  return true;
}

void TaskScheduler::schedule(Shape& shape, Clock::time_point now) {
  while (shape.queue.size() > shape.starting) {
    if (lease_one(shape, now)) continue;
    set_waiting(shape, true);
    return;
  }
}

bool TaskScheduler::lease_one(Shape& shape, Clock::time_point now) {
  if (is_stopped_) return false;
  if (shape.has_devices() && shape.starting > 0) return false;  // one at a time
  auto room = rooms_.reserve(shape.resources, shape.node);
  if (!room) return false;
  if (shape.has_devices()) {
    rooms_.release(*room);  // its spawn reserves it
    Worker& worker = start_worker(std::nullopt);
    worker.has_devices = true;
    orders_.starts.push_back({worker.id, std::nullopt, shape.resources, shape.node});
    attach(worker, shape, now);
    return true;
  }
  NodeWorkers& node = nodes_[room->node];
  Worker* worker = nullptr;
  if (!node.idle.empty()) {
    worker = node.idle.back();  // the warmest
    wake(*worker);
  } else if (node.all - node.blocked < rooms_.max_workers(room->node) &&
             node.all < limits_.max_workers) {
    worker = &start_worker(room->node);
    orders_.starts.push_back({worker->id, room->node});
  } else {
    rooms_.release(*room);
    return false;
  }
  worker->room = std::move(room);
  attach(*worker, shape, now);
  return true;
}

TaskScheduler::Worker& TaskScheduler::start_worker(std::optional<std::size_t> node) {
  auto worker = std::make_unique<Worker>();
  Worker& made = *worker;
  made.id = next_worker_++;
  made.begun = changes_;
  if (node) {
    made.node = *node;
    ++nodes_[*node].all;
  }
  workers_.emplace(made.id, std::move(worker));
  return made;
}

void TaskScheduler::attach(Worker& worker, Shape& shape, Clock::time_point now) {
  worker.shape = &shape;
  worker.since = now;
  ++shape.leased;
  if (!worker.is_ready) {
    ++shape.starting;
    return;
  }
  (void)give(worker);
}

std::size_t TaskScheduler::window(const Shape& shape) const {
  if (shape.mean_ns <= 0) return 1;
  const double tasks = static_cast<double>(limits_.ahead.count()) / shape.mean_ns;
  return std::clamp(static_cast<std::size_t>(tasks), std::size_t{1}, limits_.max_ahead);
}

bool TaskScheduler::give(Worker& worker) {
  Shape& shape = *worker.shape;
  const std::size_t most = window(shape);
  TaskBatch batch{worker.id, {}};
  const bool is_closed = worker.is_slow || worker.is_blocked ||
                         (!worker.flight.empty() && worker.flight.front().runs_alone);
  if (!is_closed && worker.flight.size() < most) {
    // The fair share: others that come back soon find something, too.
    const std::size_t ready = std::max<std::size_t>(1, shape.leased - shape.starting);
    std::size_t count =
        std::min(most - worker.flight.size(), (shape.queue.size() + ready - 1) / ready);
    while (count-- > 0 && !shape.queue.empty()) {
      const Tasks::iterator task = shape.queue.begin();
      const std::size_t bytes = task->arguments.size();
      const bool is_first = worker.flight.empty();
      if (!is_first &&
          (task->runs_alone || worker.flight_bytes + bytes > limits_.max_ahead_bytes)) {
        break;
      }
      task->worker = worker.id;
      worker.flight_bytes += bytes;
      batch.items.push_back(
          {task->id, task->function, task->arguments, task->deadline.value_or(no_deadline)});
      worker.flight.splice(worker.flight.end(), shape.queue, task);
      if (worker.flight.back().runs_alone) break;
    }
  }
  if (!batch.items.empty()) {
    set_unused(worker, false);
    orders_.batches.push_back(std::move(batch));
  }
  const bool is_alone = !worker.flight.empty() && worker.flight.front().runs_alone;
  set_hungry(worker, !worker.is_slow && !worker.is_blocked && !is_alone &&
                         worker.flight.size() <= most / 2);
  return !worker.flight.empty();
}

void TaskScheduler::set_hungry(Worker& worker, bool hungry) {
  if (hungry == worker.hungry.has_value()) return;
  if (hungry) {
    worker.hungry = worker.shape->hungry.insert(worker.shape->hungry.end(), &worker);
  } else {
    worker.shape->hungry.erase(*worker.hungry);
    worker.hungry.reset();
  }
}

void TaskScheduler::settle(Worker& worker, Clock::time_point now) {
  if (worker.shape == nullptr) {  // its task waited, and others have its room
    if (!worker.flight.empty()) return;
    rest(worker, now);
    return try_waiting(now);
  }
  const bool others_wait = waiting_.size() > (worker.shape->is_waiting ? 1U : 0U);
  const bool is_over = others_wait && !worker.has_devices && now - worker.since > limits_.max_lease;
  if (!is_over && give(worker)) return;
  if (is_over) set_hungry(worker, false);
  if (!worker.flight.empty()) return;
  if (worker.has_devices && worker.shape->queue.empty()) {
    worker.since = now;  // kept for a while, with its devices: on_time
    set_unused(worker, false);
    set_unused(worker, true);
    return;
  }
  Shape& shape = *worker.shape;
  end_lease(worker);
  rest(worker, now);
  if (shape.is_waiting) {  // others come first
    set_waiting(shape, false);
    set_waiting(shape, true);
  }
  drop_if_unused(shape);
  try_waiting(now);
}

void TaskScheduler::end_lease(Worker& worker) {
  Shape& shape = *worker.shape;
  set_hungry(worker, false);
  set_unused(worker, false);
  worker.shape = nullptr;
  --shape.leased;
  if (!worker.is_ready) --shape.starting;
  if (worker.room) rooms_.release(*std::exchange(worker.room, std::nullopt));
  // Its queue may be left to a lease that others have ended.
  if (!shape.queue.empty() && shape.leased == 0) set_waiting(shape, true);
}

void TaskScheduler::rest(Worker& worker, Clock::time_point now) {
  if (worker.idle) return;
  worker.since = now;
  worker.is_slow = false;
  Idle& idle = nodes_[worker.node].idle;
  worker.idle = idle.insert(idle.end(), &worker);
  ++idle_count_;
}

void TaskScheduler::wake(Worker& worker) {
  if (!worker.idle) return;
  nodes_[worker.node].idle.erase(*std::exchange(worker.idle, std::nullopt));
  --idle_count_;
}

void TaskScheduler::set_waiting(Shape& shape, bool waiting) {
  if (std::exchange(shape.is_waiting, waiting) == waiting) return;
  if (waiting) {
    shape.waiting = waiting_.insert(waiting_.end(), &shape);
    if (first_looked_at_ == waiting_.end()) first_looked_at_ = shape.waiting;
  } else {
    if (first_looked_at_ == shape.waiting) ++first_looked_at_;
    waiting_.erase(shape.waiting);
  }
}

void TaskScheduler::try_waiting(Clock::time_point now) {
  first_looked_at_ = waiting_.end();
  look(limits_.looks_at_once, now);
}

void TaskScheduler::look(std::size_t shapes, Clock::time_point now) {
  for (; shapes > 0 && has_looks_due(); --shapes) {
    Shape& shape = *waiting_.front();
    set_waiting(shape, false);
    schedule(shape, now);  // at the end of the list again if there is no room
    if (shape.is_waiting && shape.checked != changes_) {
      shape.checked = changes_;
      const auto fits = rooms_.check(shape.resources, shape.node);
      if (!fits.ok()) fail_queue(shape, fits.error());
    }
    drop_if_unused(shape);
  }
}

void TaskScheduler::look_in_turn(Clock::time_point now) {
  if (!has_looks_due() || now < next_look_) return;
  look(limits_.looks_in_turn, now);
  next_look_ = now + limits_.look_turn;
}

void TaskScheduler::set_unused(Worker& worker, bool unused) {
  if (unused == worker.unused.has_value()) return;
  if (unused) {
    worker.unused = unused_.insert(unused_.end(), &worker);
  } else {
    unused_.erase(*std::exchange(worker.unused, std::nullopt));
  }
}

}  // namespace troupe
