#include "runtime/base/task_pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "runtime/base/blocking.hpp"
#include "runtime/base/eager_lock.hpp"
#include "runtime/base/log.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_every{10};
/// A thread without a task looks for one so long before it sleeps: to wake it would cost whoever
/// submits the next one as much.
constexpr std::chrono::microseconds look_for_next{10};
constexpr int looks_of_long_task = 100;

/// True if the kernel says that this thread of the process sleeps: state S or D in proc(5)'s stat,
/// behind the thread's name in parentheses.
bool sleeps(pid_t thread) {
  const std::string path = fmt::format("/proc/self/task/{}/stat", thread);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 256> text{};
  const ssize_t got = ::read(file, text.data(), text.size());
  ::close(file);
  if (got <= 0) return false;
  const std::string_view stat(text.data(), static_cast<std::size_t>(got));
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'S' || state == 'D';
}

}  // namespace

class TaskPool::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(Options options)
      : options_(std::move(options)),
        parallel_(options_.parallel > 0 ? options_.parallel
                                        : std::max(2U, std::thread::hardware_concurrency())) {}

  Result<void> start();
  void submit(std::shared_ptr<PoolTask> task);
  bool has_empty_queue() const { return queued_.load(std::memory_order_relaxed) == 0; }
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return {threads_, running_, idle_.size(), queue_.size()};
  }
  bool stop(std::chrono::milliseconds timeout);

 private:
  struct Worker final : BlockingObserver {
    explicit Worker(State& of) : pool(of) {}
    void begin_blocking() noexcept override { pool.begin_blocking(*this); }
    void end_blocking() noexcept override { pool.end_blocking(*this); }

    State& pool;
    std::condition_variable woken;
    pid_t thread = 0;
    bool is_woken = false;
    bool is_running = true;  ///< counts among running_
    bool has_task = false;
    std::uint64_t tasks = 0;  ///< begun so far

    // The monitor's.
    std::uint64_t seen_tasks = 0;
    int looks = 0;  ///< in which its task was the same
  };
  using Lock = std::unique_lock<std::mutex>;

  // With mutex_ held:

  void set_running(Worker& worker, bool runs) {
    if (worker.is_running == runs) return;
    worker.is_running = runs;
    runs ? ++running_ : --running_;
  }
  /// Waits a moment for the next task without sleeping; true if there is one. One thread at a time.
  bool look_for_task(Lock& lock);
  /// Has another thread look for tasks if fewer than `parallel` run; false if none will. One is on
  /// its way at a time, and has the next one come if it finds more than one task: so few are woken
  /// for tasks that are short.
  bool add_running();
  void wake_up(Worker& worker) {
    worker.is_woken = true;
    ++on_their_way_;
    set_running(worker, true);
    worker.woken.notify_one();
  }
  void start_worker();
  void wake_monitor() {
    if (std::exchange(monitor_sleeps_, false)) monitor_.notify_one();
  }

  void begin_blocking(Worker& worker) noexcept;
  void end_blocking(Worker& worker) noexcept;
  void work(const std::shared_ptr<Worker>& self);
  /// Waits until there is more to do; false if the thread is to end.
  bool rest(Worker& self, Lock& lock);
  void run_next(Worker& self, Lock& lock);
  void monitor();
  void start_wanted(Lock& lock);
  /// Finds the threads that wait without having said so.
  void look(Lock& lock);

  const Options options_;
  const std::size_t parallel_;
  mutable std::mutex mutex_;
  std::condition_variable monitor_, ended_;
  std::deque<std::shared_ptr<PoolTask>> queue_;
  std::atomic<std::size_t> queued_ = 0;  ///< queue_.size()
  std::set<std::shared_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;     ///< the last one is woken first: its caches are warm
  std::size_t threads_ = 0;       ///< with those that are to be started
  std::size_t running_ = 0;       ///< of them, those that have or look for a task and do not wait
  std::size_t on_their_way_ = 0;  ///< of those that run: woken or to be started
  std::size_t to_start_ = 0;      ///< of those, by the monitor
  bool one_looks_ = false;        ///< see look_for_task()
  bool monitor_runs_ = false;
  bool monitor_sleeps_ = false;  ///< until it is woken
  bool is_stopping_ = false;
  bool has_told_of_waits_ = false;
  bool has_told_of_starts_ = false;
};

Result<void> TaskPool::State::start() {
  std::lock_guard lock(mutex_);
  if (threads_ > 0 || is_stopping_) return {};
  try {
    if (!monitor_runs_) {
      std::thread([self = shared_from_this()] { self->monitor(); }).detach();
      monitor_runs_ = true;
    }
    start_worker();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread of '{}': {}", options_.name,
                error.what());
  }
  ++threads_;
  ++running_;
  ++on_their_way_;
  return {};
}

void TaskPool::State::start_worker() {
  std::thread([self = shared_from_this(), worker = std::make_shared<Worker>(*this)] {
    self->work(worker);
  }).detach();  // stop() replaces join, because it has a limit
}

void TaskPool::State::submit(std::shared_ptr<PoolTask> task) {
  {
    const auto lock = lock_eagerly(mutex_);
    if (!is_stopping_ || monitor_runs_) {
      queue_.push_back(std::move(task));
      queued_.store(queue_.size(), std::memory_order_relaxed);
      if (!add_running()) wake_monitor();
      return;
    }
  }
  task->run_task();
}

bool TaskPool::State::add_running() {
  if (one_looks_) return true;
  if (running_ >= parallel_) return false;
  if (on_their_way_ > 0) return true;
  if (!idle_.empty()) {
    Worker& worker = *idle_.back();
    idle_.pop_back();
    wake_up(worker);
    return true;
  }
  if (threads_ >= options_.max_threads) {
    if (!std::exchange(has_told_of_waits_, true)) {
      log::warning("all {} threads of '{}' wait; what is queued waits for them", threads_,
                   options_.name);
    }
    return false;
  }
  ++threads_;
  ++running_;
  ++on_their_way_;
  ++to_start_;
  monitor_sleeps_ = false;
  monitor_.notify_one();
  return true;
}

void TaskPool::State::begin_blocking(Worker& worker) noexcept {
  std::lock_guard lock(mutex_);
  set_running(worker, false);
  if (!queue_.empty() && !add_running()) wake_monitor();
}

void TaskPool::State::end_blocking(Worker& worker) noexcept {
  std::lock_guard lock(mutex_);
  set_running(worker, true);
}

void TaskPool::State::work(const std::shared_ptr<Worker>& self) {
  ::pthread_setname_np(::pthread_self(), options_.name.substr(0, 15).c_str());
  set_blocking_observer(self.get());
  Lock lock(mutex_);
  self->thread = ::gettid();
  workers_.insert(self);
  --on_their_way_;
  while (true) {
    if (!queue_.empty() && running_ <= parallel_) {
      run_next(*self, lock);
    } else if (!rest(*self, lock)) {
      break;
    }
  }
  workers_.erase(self);
  --threads_;
  if (is_stopping_) monitor_.notify_one();
}

void TaskPool::State::run_next(Worker& self, Lock& lock) {
  auto task = std::move(queue_.front());
  queue_.pop_front();
  queued_.store(queue_.size(), std::memory_order_relaxed);
  ++self.tasks;
  self.has_task = true;
  if (!queue_.empty() && !add_running()) wake_monitor();
  lock.unlock();
  task->run_task();
  task.reset();  // its destructor may take long, too
  lock_eagerly(lock);
  self.has_task = false;
  set_running(self, true);
}

bool TaskPool::State::look_for_task(Lock& lock) {
  if (one_looks_ || is_stopping_ || !queue_.empty()) return false;
  one_looks_ = true;
  lock.unlock();
  const auto until = Clock::now() + look_for_next;
  while (has_empty_queue() && Clock::now() < until) {
    for (int i = 0; i < 16; ++i) relax_cpu();
  }
  lock_eagerly(lock);
  one_looks_ = false;
  return !queue_.empty();
}

bool TaskPool::State::rest(Worker& self, Lock& lock) {
  if (look_for_task(lock)) return true;
  set_running(self, false);
  if (!queue_.empty()) wake_monitor();  // those that run may wait without saying so
  if (is_stopping_) return false;
  self.is_woken = false;
  idle_.push_back(&self);
  while (!self.woken.wait_for(lock, options_.idle_limit, [&] { return self.is_woken; })) {
    if (threads_ <= parallel_) continue;
    std::erase(idle_, &self);
    return false;
  }
  --on_their_way_;
  return true;
}

void TaskPool::State::monitor() {
  ::pthread_setname_np(::pthread_self(), "pool monitor");
  Lock lock(mutex_);
  auto next_look = Clock::now();
  while (!is_stopping_ || threads_ > 0 || !queue_.empty()) {
    if (to_start_ > 0) {
      start_wanted(lock);
    } else if (queue_.empty()) {
      monitor_sleeps_ = true;
      monitor_.wait(lock);
      monitor_sleeps_ = false;
      next_look = Clock::now() + look_every;
    } else if (Clock::now() < next_look) {
      monitor_.wait_until(lock, next_look);
    } else {
      look(lock);
      next_look = Clock::now() + look_every;
    }
  }
  monitor_runs_ = false;
  ended_.notify_all();
}

void TaskPool::State::start_wanted(Lock& lock) {
  while (to_start_ > 0) {
    --to_start_;
    lock.unlock();
    std::string problem;
    try {
      start_worker();
    } catch (const std::system_error& error) {
      problem = error.what();
    }
    lock.lock();
    if (problem.empty()) continue;
    if (!std::exchange(has_told_of_starts_, true)) {
      log::warning("cannot start another thread of '{}', beside {}: {}", options_.name,
                   threads_ - 1 - to_start_, problem);
    }
    // look() tries again.
    threads_ -= 1 + to_start_;
    running_ -= 1 + to_start_;
    on_their_way_ -= 1 + to_start_;
    to_start_ = 0;
  }
}

void TaskPool::State::look(Lock& lock) {
  std::vector<std::pair<std::shared_ptr<Worker>, bool>> suspects;
  for (const auto& worker : workers_) {
    if (!worker->has_task || !worker->is_running) continue;
    const bool is_same = std::exchange(worker->seen_tasks, worker->tasks) == worker->tasks;
    worker->looks = is_same ? worker->looks + 1 : 0;
    if (is_same) suspects.emplace_back(worker, worker->looks >= looks_of_long_task);
  }
  lock.unlock();
  for (auto& [worker, waits] : suspects) waits = waits || sleeps(worker->thread);
  lock.lock();
  for (const auto& [worker, waits] : suspects) {
    const bool is_same = worker->has_task && worker->tasks == worker->seen_tasks;
    if (waits && is_same) set_running(*worker, false);
  }
  if (!queue_.empty()) add_running();
}

bool TaskPool::State::stop(std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  is_stopping_ = true;
  for (Worker* worker : std::exchange(idle_, {})) wake_up(*worker);
  monitor_.notify_one();
  return ended_.wait_for(lock, timeout, [this] { return !monitor_runs_; });
}

TaskPool::TaskPool(Options options) : state_(std::make_shared<State>(std::move(options))) {}
TaskPool::~TaskPool() { state_->stop(std::chrono::milliseconds(0)); }
Result<void> TaskPool::start() { return state_->start(); }
void TaskPool::submit(std::shared_ptr<PoolTask> task) { state_->submit(std::move(task)); }
bool TaskPool::has_empty_queue() const { return state_->has_empty_queue(); }
TaskPool::Counts TaskPool::counts() const { return state_->counts(); }
bool TaskPool::stop(std::chrono::milliseconds timeout) { return state_->stop(timeout); }

}  // namespace troupe
