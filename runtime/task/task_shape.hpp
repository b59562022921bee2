#pragma once

#include <list>

#include "runtime/task/task_scheduler.hpp"

namespace troupe {

struct TaskScheduler::Shape {
  Resources resources;
  std::string node;
  Tasks queue{};                          ///< the next one first
  std::size_t tasks = 0;                  ///< queued, and with workers
  std::size_t starting = 0;               ///< workers that are leased to it and not ready
  std::size_t leased = 0;                 ///< workers, with these
  int lost_starts = 0;                    ///< workers that died before they were ready, in a row
  Hungry hungry{};                        ///< ready ones that could do with more tasks
  double mean_ns = 0;                     ///< what a task takes, lately; 0: not known
  std::list<Shape*>::iterator waiting{};  ///< in the scheduler's list, if is_waiting
  bool is_waiting = false;                ///< no room was free for another worker
  std::list<std::unique_ptr<Shape>>::iterator self{};

  bool has_devices() const { return resources.devices > 0; }
  bool is_unused() const { return tasks == 0 && leased == 0; }
};

}  // namespace troupe
