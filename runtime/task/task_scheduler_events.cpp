#include <algorithm>
#include <iterator>

#include "runtime/task/task_scheduler.hpp"
#include "runtime/task/task_shape.hpp"

namespace troupe {

// What workers say, their ends, and time.

namespace {

constexpr int max_lost_starts = 3;

Error not_in_time(const TaskScheduler::Task& task) {
  return fail(ErrorCode::timed_out, "task {} has not {} in its time", task.name,
              task.worker == 0 ? "begun" : "ended");
}

}  // namespace

void TaskScheduler::answer(Task& task, Result<Bytes> result) {
  if (task.done) orders_.answers.push_back({std::exchange(task.done, nullptr), std::move(result)});
}

void TaskScheduler::unlist(Task& task) {
  bytes_ -= task.arguments.size();
  if (task.deadline) deadlines_.erase({*task.deadline, task.id});
  index_.erase(task.id);
  --task.shape->tasks;
}

void TaskScheduler::end_early(Tasks::iterator task, Error why) {
  answer(*task, std::move(why));
  if (task->worker != 0) {
    if (task->deadline) deadlines_.erase({*task->deadline, task->id});
    task->deadline.reset();
    orders_.cancels.push_back({task->worker, task->id});
    return;
  }
  Shape& shape = *task->shape;
  unlist(*task);
  shape.queue.erase(task);
  drop_if_unused(shape);
}

TaskScheduler::Worker* TaskScheduler::NodeWorkers::next_to_stop() const {
  if (idle.size() < 2) return nullptr;  // one is kept warm
  const auto found =
      std::ranges::find_if(idle, [](const Worker* worker) { return !worker->has_objects; });
  return found == idle.end() ? nullptr : *found;
}

void TaskScheduler::on_started(TaskWorkerId id, std::size_t node, Clock::time_point now) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = *found->second;
  worker.is_ready = true;
  worker.node = node;
  if (worker.shape == nullptr) return rest(worker, now);
  Shape& shape = *worker.shape;
  --shape.starting;
  shape.lost_starts = 0;
  settle(worker, now);
  if (worker.shape != &shape || !shape.has_devices() || shape.queue.empty()) return;
  set_waiting(shape, false);
  schedule(shape, now);
}

void TaskScheduler::on_start_failed(TaskWorkerId id, const Error& why, Clock::time_point now) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = *found->second;
  Shape* const shape = worker.shape;
  const bool is_tried_again =
      why.code == ErrorCode::resource_exhausted ||
      (shape != nullptr && is_actor_gone(why.code) && ++shape->lost_starts < max_lost_starts);
  if (shape != nullptr && shape->leased == 1) {
    if (!is_tried_again) {
      fail_queue(*shape, fail(why.code, "no process for tasks can be started: {}", why.message));
    } else if (auto fits = rooms_.check(shape->resources, shape->node); !fits.ok()) {
      fail_queue(*shape, fits.error());  // its node has died
    }
  }
  if (shape != nullptr) {
    if (!shape->queue.empty()) set_waiting(*shape, true);
    end_lease(worker);
    drop_if_unused(*shape);
  }
  // There may be room since that was found out.
  if (worker.begun != changes_) first_looked_at_ = waiting_.end();
  forget(worker);
  if (why.code != ErrorCode::resource_exhausted) try_waiting(now);
}

void TaskScheduler::on_report(TaskReport report, Clock::time_point now) {
  const auto found = workers_.find(report.worker);
  if (found == workers_.end()) return;  // its tasks are others' already
  Worker& worker = *found->second;
  worker.has_objects = report.has_objects;
  if (!report.answers.empty()) {
    worker.is_slow = false;
    if (worker.is_blocked) {
      worker.is_blocked = false;
      --nodes_[worker.node].blocked;
    }
    const double mean =
        static_cast<double>(report.busy_ns) / static_cast<double>(report.answers.size());
    if (worker.shape != nullptr) {
      double& known = worker.shape->mean_ns;
      known = std::max(1.0, known <= 0 ? mean : 0.7 * known + 0.3 * mean);
    }
  }
  for (TaskReport::Answer& one : report.answers) {
    const auto entry = index_.find(one.task);
    if (entry == index_.end() || entry->second->worker != worker.id) continue;
    const Tasks::iterator task = entry->second;
    // A task may see the end of its time before on_time does, and end because of it.
    const bool is_late = task->deadline && *task->deadline <= now;
    answer(*task, is_late ? not_in_time(*task) : one.take());
    worker.flight_bytes -= task->arguments.size();
    unlist(*task);
    worker.flight.erase(task);
  }
  Shape* back = nullptr;  // has a task that is queued again, or with this worker
  for (auto id = report.returned.rbegin(); id != report.returned.rend(); ++id) {
    const auto entry = index_.find(*id);
    if (entry == index_.end() || entry->second->worker != worker.id) continue;
    Shape* const shape = entry->second->shape;
    if (queue_again(worker, entry->second)) back = shape;
  }
  if (!report.returned.empty() && !worker.flight.empty()) worker.is_slow = true;
  if (report.is_blocked && !worker.flight.empty() && !worker.has_devices && !worker.is_blocked) {
    worker.is_blocked = true;
    ++nodes_[worker.node].blocked;
    if (worker.shape != nullptr) {
      back = worker.shape;
      end_lease(worker);
    }
  }
  settle(worker, now);
  if (back != nullptr && !back->queue.empty()) {
    if (!back->is_waiting) schedule(*back, now);
  }
  if (report.is_blocked) try_waiting(now);
}

bool TaskScheduler::queue_again(Worker& worker, Tasks::iterator task) {
  Shape& shape = *task->shape;
  worker.flight_bytes -= task->arguments.size();
  task->worker = 0;
  shape.queue.splice(shape.queue.begin(), worker.flight, task);
  if (task->done) return true;
  unlist(*task);  // it has timed out, or was cancelled
  shape.queue.erase(task);
  return false;
}

void TaskScheduler::on_lost(TaskWorkerId id, const std::string& why, Clock::time_point now) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = *found->second;
  Shape* shape = worker.shape;
  // Of several tasks, any may have ended the process: each is run again alone.
  const bool is_known = worker.flight.size() == 1;
  while (!worker.flight.empty()) {
    const Tasks::iterator task = std::prev(worker.flight.end());
    shape = task->shape;
    const bool counts = task->max_retries >= 0 && (is_known || task->max_retries == 0);
    if (task->done && counts && task->retries_left-- <= 0) {
      answer(*task, fail(ErrorCode::actor_died, "task {} {}: {}", task->name,
                         task->max_retries == 0
                             ? "is not run again (max_retries 0), and its process has ended"
                             : "has ended its process each time",
                         why));
    }
    task->runs_alone = true;
    (void)queue_again(worker, task);
  }
  if (worker.shape != nullptr) end_lease(worker);
  forget(worker);
  if (shape != nullptr && !shape->queue.empty() && !shape->is_waiting) schedule(*shape, now);
  if (shape != nullptr) drop_if_unused(*shape);
  try_waiting(now);
}

void TaskScheduler::forget(Worker& worker) {
  wake(worker);
  if (!worker.has_devices) {
    NodeWorkers& node = nodes_[worker.node];
    --node.all;
    if (worker.is_blocked) --node.blocked;
  }
  workers_.erase(worker.id);
}

void TaskScheduler::fail_queue(Shape& shape, const Error& why) {
  while (!shape.queue.empty()) {
    Task& task = shape.queue.front();
    answer(task, why);
    unlist(task);
    shape.queue.pop_front();
  }
}

void TaskScheduler::on_room(Clock::time_point now) {
  ++changes_;
  try_waiting(now);
  look_in_turn(now);
}

void TaskScheduler::on_time(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Tasks::iterator task = index_.find(deadlines_.begin()->second)->second;
    end_early(task, not_in_time(*task));
  }
  look_in_turn(now);
  for (auto& [index, node] : nodes_) {
    for (Worker* next = node.next_to_stop(); next != nullptr; next = node.next_to_stop()) {
      if (now - next->since < limits_.idle_limit) break;
      orders_.stops.push_back(next->id);
      forget(*next);
    }
  }
  while (!unused_.empty() && now - unused_.front()->since >= limits_.device_idle_limit) {
    Worker& worker = *unused_.front();
    Shape& shape = *worker.shape;
    orders_.stops.push_back(worker.id);
    end_lease(worker);
    forget(worker);
    drop_if_unused(shape);
  }
}

std::optional<TaskScheduler::Clock::time_point> TaskScheduler::next_due() const {
  std::optional<Clock::time_point> due;
  const auto consider = [&](Clock::time_point time) { due = due ? std::min(*due, time) : time; };
  if (!deadlines_.empty()) consider(deadlines_.begin()->first);
  for (const auto& [index, node] : nodes_) {
    if (const Worker* next = node.next_to_stop()) consider(next->since + limits_.idle_limit);
  }
  if (!unused_.empty()) consider(unused_.front()->since + limits_.device_idle_limit);
  if (has_looks_due()) consider(next_look_);
  return due;
}

void TaskScheduler::stop(const Error& why) {
  is_stopped_ = true;
  for (auto& [id, task] : index_) answer(*task, why);
}

}  // namespace troupe
