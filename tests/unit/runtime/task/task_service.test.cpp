#include "runtime/task/task_service.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/call/in_process_transport.hpp"
#include "runtime/task/submit.hpp"
#include "runtime/task/task_worker.hpp"
#include "tests/unit/runtime/task/simulated_workers.hpp"

namespace troupe::test {

int plus(int a, int b) { return a + b; }
void nap_for_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

namespace {

using namespace std::chrono_literals;

constexpr auto limit = 60s;

/// A service with workers on threads of this process.
class Service {
 public:
  explicit Service(int cpus, TaskLimits limits = {}) {
    auto hub = CallHub::create(make_in_process_transport("here"), {});
    if (!hub.ok()) throw std::runtime_error(hub.error().message);
    hub_ = *std::move(hub);
    TaskService::Host host;
    host.hub = hub_;
    host.rooms = std::make_shared<CountedRooms>(std::vector<int>{cpus});
    host.start_worker = [this](const TaskScheduler::Orders::Start& start,
                               TaskService::OnStarted done) {
      start_worker(*start.node, std::move(done));
    };
    host.stop_worker = [](const ActorAddress&, bool) {};
    host.limits = limits;
    host.patience = 10s;
    service = TaskService::start(std::move(host));
  }
  ~Service() {
    service->stop();
    for (auto& starter : starters_) starter.join();
    std::map<ActorId, std::shared_ptr<TaskWorker>> workers;
    {
      const std::lock_guard lock(mutex_);
      workers.swap(workers_);
    }
    for (auto& [id, worker] : workers) worker->stop();
    hub_->stop();
  }

  template <auto function, class... Args>
  auto submit(const TaskOptions& options, Args&&... args) {
    return task_detail::submit<function>(
        hub_, options,
        [this](SubmittedTask task, CallCompletion done) {
          return service->submit(std::move(task), std::move(done));
        },
        std::forward<Args>(args)...);
  }
  /// Says that a worker has died, which goes on unheard.
  bool lose_a_worker() {
    std::unique_lock lock(mutex_);
    if (workers_.empty()) return false;
    auto lost = workers_.extract(workers_.begin());
    lost_.push_back(lost.mapped());
    lock.unlock();
    service->on_down(lost.key(), "lost on purpose");
    return true;
  }

  std::shared_ptr<TaskService> service;

 private:
  void start_worker(std::size_t node, TaskService::OnStarted done) {
    const std::lock_guard lock(mutex_);
    const ActorId id = next_++;
    starters_.emplace_back([this, id, node, done = std::move(done)] {
      // The tasks of this test take no context.
      alignas(std::max_align_t) static std::byte no_context[256];
      auto worker = TaskWorker::start(reinterpret_cast<ActorContext&>(no_context),
                                      {hub_, task_service_at(hub_->endpoint())});
      if (!worker.ok()) return done(worker.error());
      const ActorAddress address{id, hub_->endpoint(), "worker", "worker"};
      hub_->add_target(task_target_of(address).id, *worker);
      {
        const std::lock_guard inner(mutex_);
        workers_[id] = *worker;
      }
      done(TaskService::Started{address, node});
    });
  }

  std::shared_ptr<CallHub> hub_;
  std::mutex mutex_;
  ActorId next_ = 1;
  std::map<ActorId, std::shared_ptr<TaskWorker>> workers_;
  std::vector<std::shared_ptr<TaskWorker>> lost_;
  std::vector<std::thread> starters_;
};

TEST(TaskService, answers_submitters_on_many_threads) {
  Service tasks(2);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&, t] {
      std::vector<Future<int>> sums;
      for (int i = 0; i < 2000; ++i) sums.push_back(tasks.submit<&plus>({}, i, t));
      for (int i = 0; i < 2000; ++i) {
        const auto sum = sums[static_cast<std::size_t>(i)].get(limit);
        if (!sum.ok() || *sum != i + t) ++wrong;
      }
    });
  }
  for (auto& submitter : submitters) submitter.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(tasks.service->counts().tasks, 0U);
}

TEST(TaskService, answers_each_task_once_although_workers_are_lost) {
  Service tasks(2);
  std::atomic<int> answers = 0, wrong = 0;
  constexpr int count = 4000;
  std::vector<Future<int>> sums;
  for (int i = 0; i < count; ++i) {
    sums.push_back(tasks.submit<&plus>({.max_retries = -1}, i, 1));
    sums.back().then([&, i](const Result<int>& sum) {
      if (!sum.ok() || *sum != i + 1) ++wrong;
      ++answers;
      answers.notify_all();
    });
    if (i % 500 == 499) tasks.lose_a_worker();
  }
  for (int seen = answers; seen < count; seen = answers) answers.wait(seen);
  EXPECT_EQ(answers, count);
  EXPECT_EQ(wrong, 0);
}

TEST(TaskService, cancels_tasks_that_wait) {
  Service tasks(1);
  auto slow = tasks.submit<&nap_for_ms>({}, 200);
  auto queued = tasks.submit<&plus>({}, 1, 2);
  queued.cancel();
  queued.cancel();
  EXPECT_EQ(queued.get(limit).error().code, ErrorCode::cancelled);
  EXPECT_TRUE(slow.get(limit).ok());
}

TEST(TaskService, answers_late_tasks_in_time) {
  Service tasks(1);
  auto slow = tasks.submit<&nap_for_ms>({.timeout = 50ms}, 1000);
  auto queued = tasks.submit<&plus>({.timeout = 20ms}, 1, 2);
  EXPECT_EQ(queued.get(limit).error().code, ErrorCode::timed_out);
  EXPECT_EQ(slow.get(limit).error().code, ErrorCode::timed_out);
  EXPECT_EQ(*tasks.submit<&plus>({}, 1, 2).get(limit), 3);
}

TEST(TaskService, lets_submitters_wait_for_room) {
  Service tasks(2, {.max_tasks = 8});
  std::vector<Future<int>> sums;
  for (int i = 0; i < 500; ++i) {
    sums.push_back(tasks.submit<&plus>({}, i, 1));
    EXPECT_LE(tasks.service->counts().tasks, 8U);
  }
  for (int i = 0; i < 500; ++i) EXPECT_EQ(*sums[static_cast<std::size_t>(i)].get(limit), i + 1);
}

TEST(TaskService, answers_all_when_it_stops) {
  std::vector<Future<void>> naps;
  {
    Service tasks(2);
    for (int i = 0; i < 50; ++i) naps.push_back(tasks.submit<&nap_for_ms>({}, 20));
  }
  for (auto& nap : naps) {
    const auto ended = nap.get(0s);
    EXPECT_TRUE(ended.ok() || ended.error().code == ErrorCode::cancelled) << ended.error().message;
  }
}

}  // namespace
}  // namespace troupe::test
