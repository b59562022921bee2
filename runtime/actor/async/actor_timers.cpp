#include "runtime/actor/async/actor_timers.hpp"

#include <utility>
#include <vector>

#include "runtime/base/exception_text.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

void ActorTimers::add(Clock::time_point due, std::shared_ptr<ActorTask> task) {
  std::unique_lock lock(mutex_);
  if (is_closed_) return;
  tasks_.emplace(std::pair(due, task.get()), std::move(task));
  arm(std::move(lock));
}

void ActorTimers::cancel(Clock::time_point due, const ActorTask& task) {
  std::unique_lock lock(mutex_);
  const auto node = tasks_.extract({due, &task});  // destroyed without the lock
  lock.unlock();
}

void ActorTimers::close() {
  decltype(tasks_) forgotten;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  forgotten.swap(tasks_);
}

void ActorTimers::arm(std::unique_lock<std::mutex> lock) {
  if (tasks_.empty() || tasks_.begin()->first.first >= armed_for_) return;
  armed_for_ = tasks_.begin()->first.first;
  const auto delay = armed_for_ - Clock::now();
  lock.unlock();
  const auto hub = hub_.lock();
  if (!hub) return;
  hub->run_after(
      std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(delay)),
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->post_due();
      });
}

void ActorTimers::post_due() {
  std::vector<std::shared_ptr<ActorTask>> due;
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  while (!tasks_.empty() && tasks_.begin()->first.first <= now) {
    due.push_back(std::move(tasks_.begin()->second));
    tasks_.erase(tasks_.begin());
  }
  // An earlier call may come for a task that was cancelled; a later one is then armed again.
  if (armed_for_ <= now) armed_for_ = Clock::time_point::max();
  arm(std::move(lock));
  const auto executor = executor_.lock();
  if (!executor) return;
  for (auto& task : due) executor->post(std::move(task));
}

namespace {

class Timer final : public ActorTask, public std::enable_shared_from_this<Timer> {
 public:
  Timer(const std::shared_ptr<ActorTimers>& timers, std::chrono::nanoseconds interval,
        std::function<void()> function)
      : timers_(timers), interval_(interval), function_(std::move(function)) {}

  void start(ActorTimers::Clock::time_point due) {
    std::lock_guard lock(mutex_);
    const auto timers = timers_.lock();
    if (is_cancelled_ || !timers) return;
    due_ = due;
    timers->add(due, shared_from_this());
  }

  void cancel() {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    if (const auto timers = timers_.lock()) timers->cancel(due_, *this);
  }

  void run_on_actor() noexcept override {
    {
      std::lock_guard lock(mutex_);
      if (is_cancelled_) return;
    }
    try {
      function_();
    } catch (...) {
      log::error("what a timer was set for threw: {}", current_exception_text());
    }
    if (interval_ <= interval_.zero()) return;
    auto next = due_ + interval_;
    if (const auto now = ActorTimers::Clock::now(); next < now) {
      next += (now - next) / interval_ * interval_ + interval_;
    }
    start(next);
  }

 private:
  const std::weak_ptr<ActorTimers> timers_;
  const std::chrono::nanoseconds interval_;
  const std::function<void()> function_;
  std::mutex mutex_;
  ActorTimers::Clock::time_point due_;
  bool is_cancelled_ = false;
};

}  // namespace

TimerToken start_timer(const std::shared_ptr<ActorTimers>& timers, std::chrono::nanoseconds delay,
                       std::chrono::nanoseconds interval, std::function<void()> function) {
  const auto timer = std::make_shared<Timer>(timers, interval, std::move(function));
  timer->start(ActorTimers::Clock::now() + delay);
  return TimerToken([timer] { timer->cancel(); });
}

}  // namespace troupe
