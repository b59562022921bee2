#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/task/task_scheduler.hpp"

namespace troupe::test {

/// Nodes whose cpus are counted, and others hold some of them at times.
class CountedRooms final : public TaskRooms {
 public:
  explicit CountedRooms(std::vector<int> cpus) : whole(cpus), free(std::move(cpus)) {}

  std::optional<Room> reserve(const Resources& asked, const std::string& node) override {
    ++reserves;
    for (std::size_t i = 0; i < free.size(); ++i) {
      if (!node.empty() && node != std::to_string(i)) continue;
      if (free[i] < asked.cpus) continue;
      free[i] -= asked.cpus;
      return Room{i, {.amounts = asked}};
    }
    return std::nullopt;
  }
  void release(const Room& room) override {
    free[room.node] += room.held.amounts.cpus;
    EXPECT_LE(free[room.node], whole[room.node]) << "released twice";
  }
  Result<void> check(const Resources& asked, const std::string& node) const override {
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (!node.empty() && node != std::to_string(i)) continue;
      if (whole[i] >= asked.cpus && asked.devices == 0) return {};
    }
    return fail(ErrorCode::unschedulable, "too much");
  }
  std::size_t max_workers(std::size_t node) const override {
    return static_cast<std::size_t>(std::max(1, whole[node]));
  }

  std::vector<int> whole, free;
  std::size_t reserves = 0;
};

/// Carries a scheduler's orders out on simulated workers, in simulated time.
class SimulatedWorkers {
 public:
  using Clock = TaskScheduler::Clock;
  struct Worker {
    std::size_t node = 0;
    bool is_started = false;
    std::deque<TaskId> tasks{};
  };

  explicit SimulatedWorkers(std::vector<int> cpus, TaskScheduler::Limits limits = {})
      : rooms(std::move(cpus)), scheduler(rooms, limits) {}

  TaskId submit(std::int32_t cpus = 1, const std::string& node = "", std::int32_t retries = 3,
                std::optional<Clock::time_point> deadline = {}, std::int64_t memory = 0) {
    TaskScheduler::Task task;
    task.name = "t";
    task.arguments = Bytes(8);
    task.max_retries = task.retries_left = retries;
    task.deadline = deadline;
    const std::size_t number = answers.size();
    answers.emplace_back();
    task.done = [this, number](const Result<Bytes>& answer) {
      answers[number].push_back(answer.ok() ? std::nullopt
                                            : std::optional<ErrorCode>(answer.error().code));
    };
    const TaskId id =
        scheduler.submit(std::move(task), {.cpus = cpus, .memory_bytes = memory}, node, now);
    obey();
    return id;
  }

  /// A task of a shape of its own.
  void submit_shape(std::int32_t cpus, std::int64_t number) {
    submit(cpus, "", 3, std::nullopt, number);
  }
  /// Lets time pass until nothing is to be looked at any more; returns the milliseconds.
  int look_around() {
    int steps = 0;
    while (scheduler.next_look() && steps < 1000) {
      now = std::max(now, *scheduler.next_look());
      scheduler.on_time(now);
      obey();
      ++steps;
    }
    return steps;
  }

  /// Does what was ordered; starts and tasks are left for the test.
  void obey() {
    auto orders = scheduler.take_orders();
    for (const auto& start : orders.starts) {
      ASSERT_TRUE(start.node.has_value());
      workers[start.worker] = {*start.node};
    }
    for (const auto& batch : orders.batches) {
      ASSERT_TRUE(workers.contains(batch.worker));
      ASSERT_TRUE(workers[batch.worker].is_started) << "tasks for a worker that has not started";
      for (const auto& item : batch.items) workers[batch.worker].tasks.push_back(item.task);
    }
    for (const TaskWorkerId worker : orders.stops) {
      ASSERT_TRUE(workers[worker].tasks.empty()) << "a worker is stopped that has tasks";
      workers.erase(worker);
    }
    for (auto& [done, answer] : orders.answers) done(std::move(answer));
  }

  void start(TaskWorkerId id) {
    workers.at(id).is_started = true;
    scheduler.on_started(id, workers.at(id).node, now);
    obey();
  }
  void start_all() {
    bool any = true;
    while (std::exchange(any, false)) {
      for (auto& [id, worker] : std::map(workers)) {
        if (worker.is_started) continue;
        start(id);
        any = true;
      }
    }
  }
  /// The worker answers its first `count` tasks, each after `took`.
  void finish(TaskWorkerId id, std::size_t count, std::chrono::nanoseconds took) {
    Worker& worker = workers.at(id);
    TaskReport report{.worker = id};
    for (; count > 0 && !worker.tasks.empty(); --count) {
      report.answers.push_back({worker.tasks.front(), true, ErrorCode::internal, {}});
      report.busy_ns += static_cast<std::uint64_t>(took.count());
      worker.tasks.pop_front();
    }
    now += took;
    scheduler.on_report(std::move(report), now);
    obey();
  }
  /// It gives all but its first task back.
  void give_back(TaskWorkerId id, bool is_blocked) {
    Worker& worker = workers.at(id);
    TaskReport report{.worker = id};
    while (worker.tasks.size() > 1) {
      report.returned.insert(report.returned.begin(), worker.tasks.back());
      worker.tasks.pop_back();
    }
    report.is_blocked = is_blocked;
    scheduler.on_report(std::move(report), now);
    obey();
  }
  void lose(TaskWorkerId id) {
    workers.erase(id);
    scheduler.on_lost(id, "it was killed", now);
    obey();
  }
  void run_all() {
    for (int round = 0; round < 20000 && scheduler.counts().tasks > 0; ++round) {
      start_all();
      bool any = false;
      for (auto& [id, worker] : std::map(workers)) {
        if (!workers.contains(id) || workers.at(id).tasks.empty()) continue;
        finish(id, 1 + static_cast<std::size_t>(round) % 3, std::chrono::microseconds(10));
        any = true;
      }
      if (!any) {
        now += std::chrono::milliseconds(1);
        scheduler.on_room(now);
        obey();
      }
    }
  }
  std::size_t busy() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(workers, [](const auto& w) { return !w.second.tasks.empty(); }));
  }

  CountedRooms rooms;
  TaskScheduler scheduler;
  Clock::time_point now = Clock::time_point() + std::chrono::hours(1);
  std::map<TaskWorkerId, Worker> workers;
  std::deque<std::vector<std::optional<ErrorCode>>> answers;  ///< of each task
};

}  // namespace troupe::test
