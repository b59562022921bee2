#pragma once

#include <functional>
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
  std::uint64_t checked = 0;  ///< when it was last known that it fits, in TaskScheduler::changes_

  bool has_devices() const { return resources.devices > 0; }
  bool is_unused() const { return tasks == 0 && leased == 0; }
  ShapeKey key() const { return {&resources, &node}; }
};

/// What is asked for, and the node.
inline std::size_t TaskScheduler::ShapeHash::operator()(const ShapeKey& key) const {
  const auto mix = [](std::uint64_t so_far, std::uint64_t next) {
    return (so_far ^ next) * 0x9e3779b97f4a7c15U;
  };
  std::uint64_t custom = 0;  // in any order
  for (const auto& [name, amount] : key.resources->custom) {
    custom += mix(std::hash<std::string>()(name), static_cast<std::uint64_t>(amount));
  }
  std::uint64_t hash = mix(std::hash<std::string>()(*key.node), custom);
  hash = mix(hash, static_cast<std::uint64_t>(key.resources->cpus));
  hash = mix(hash, static_cast<std::uint64_t>(key.resources->devices));
  hash = mix(hash, static_cast<std::uint64_t>(key.resources->memory_bytes));
  return static_cast<std::size_t>(hash ^ (hash >> 32U));
}

inline bool TaskScheduler::ShapeEqual::operator()(const ShapeKey& a, const ShapeKey& b) const {
  return *a.node == *b.node && *a.resources == *b.resources;
}

}  // namespace troupe
