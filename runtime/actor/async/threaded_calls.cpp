#include "runtime/actor/async/threaded_calls.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// Then others that wait for a thread of the pool are served.
constexpr int jobs_per_turn = 16;

}  // namespace

/// A thread's worth of calls of one lane.
class ThreadedCalls::Worker final : public PoolTask, public std::enable_shared_from_this<Worker> {
 public:
  Worker(ThreadedCalls& calls, Lane& lane, std::shared_ptr<ThreadedHost> host)
      : threads_(calls.options_.threads), calls_(calls), lane_(lane), host_(std::move(host)) {}

  void run_task() noexcept override {
    if (calls_.work(lane_, *host_)) threads_->submit(shared_from_this());
  }

 private:
  const std::shared_ptr<TaskPool> threads_;
  ThreadedCalls& calls_;  ///< owned by host_
  Lane& lane_;
  const std::shared_ptr<ThreadedHost> host_;
};

ThreadedCalls::ThreadedCalls(Options options) : options_(std::move(options)) {
  lanes_.resize(1 + options_.concurrency.limits.size());
  lanes_[0].limit = options_.max_concurrency;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    lanes_[i].limit = options_.concurrency.limits[i - 1];
  }
}

bool ThreadedCalls::deliver(IncomingCall& call) {
  std::unique_lock lock(mutex_);
  if (is_closed_) return false;
  const std::size_t lane = options_.concurrency.group_of(call.method);
  add(lane, {std::move(call)}, std::move(lock));
  return true;
}

std::optional<IncomingCall> ThreadedCalls::take(const CancelToken& cancelled) {
  const std::lock_guard lock(mutex_);
  for (Lane& lane : lanes_) {
    if (auto job = lane.queue.take(cancelled)) return static_cast<IncomingCall&&>(*job);
  }
  return std::nullopt;
}

void ThreadedCalls::post(std::shared_ptr<ActorTask> task) {
  std::unique_lock lock(mutex_);
  if (is_closed_) return;
  add(0, {{}, std::move(task)}, std::move(lock));
}

void ThreadedCalls::add(std::size_t index, Job job, std::unique_lock<std::mutex> lock) {
  Lane& lane = lanes_[index];
  lane.queue.push(std::move(job));
  if (lane.threads == lane.limit) return;
  auto host = options_.host.lock();
  if (!host) return;
  ++lane.threads;
  lock.unlock();
  options_.threads->submit(std::make_shared<Worker>(*this, lane, std::move(host)));
}

bool ThreadedCalls::work(Lane& lane, ThreadedHost& host) {
  std::unique_lock lock(mutex_);
  for (int jobs = 0; !lane.queue.empty(); ++jobs) {
    if (jobs >= jobs_per_turn && !options_.threads->has_empty_queue()) return true;
    Job job = lane.queue.pop();
    lock.unlock();
    if (job.task) {
      job.task->run_on_actor();
    } else {
      host.run_call(job);
    }
    job = {};
    lock.lock();
  }
  --lane.threads;
  const bool was_closed = is_closed_;
  lock.unlock();
  if (was_closed) host.on_thread_left();
  return false;
}

std::vector<IncomingCall> ThreadedCalls::close() {
  std::vector<IncomingCall> calls;
  std::vector<Job> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (Lane& lane : lanes_) {
    while (!lane.queue.empty()) {
      Job job = lane.queue.pop();
      if (job.task) {
        dropped.push_back(std::move(job));
      } else {
        calls.push_back(std::move(job));
      }
    }
  }
  return calls;
}

bool ThreadedCalls::is_idle() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.threads == 0; });
}

}  // namespace troupe
