// What tasks of many shapes (resources and node) cost the driver: the time of a submission, and of
// an event that may have made room, while so many shapes wait for it. Both must not grow with them.
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/actor/actor_registry.hpp"
#include "runtime/actor/task_room.hpp"
#include "runtime/task/task_scheduler.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int tasks = 20'000, events = 200;

double us_each(Clock::time_point begin, int count) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / count;
}

void bench(int shapes) {
  const std::vector<NodeSpec> nodes{{.name = "node0", .cpus = 4, .memory_bytes = 1 << 20}};
  TaskRoom rooms(std::make_shared<ActorRegistry>(nodes, PlacementStrategy::pack, LogPlaces(), ""));
  TaskScheduler scheduler(rooms, {});
  const auto now = Clock::now();
  auto begin = Clock::now();
  for (int i = 0; i < tasks; ++i) {
    TaskScheduler::Task task;
    task.done = [](const Result<Bytes>&) {};
    const Resources asked{.cpus = 1, .memory_bytes = 1 + i % shapes};
    scheduler.submit(std::move(task), asked, "", now);
  }
  const double submission = us_each(begin, tasks);
  begin = Clock::now();
  for (int i = 0; i < events; ++i) scheduler.on_room(now);
  std::printf("%6d shapes: a submission %6.2f us, an event %8.2f us\n", shapes, submission,
              us_each(begin, events));
}

}  // namespace
}  // namespace troupe

int main() {
  for (const int shapes : {1, 100, 1'000, 10'000}) troupe::bench(shapes);
}
