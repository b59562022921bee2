#include "runtime/task/task_worker.hpp"

#include <algorithm>
#include <system_error>

#include <pthread.h>

#include "runtime/base/log.hpp"
#include "runtime/call/call_scope.hpp"
#include "runtime/object/object_store.hpp"

namespace troupe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// An answer is sent at the latest after the others of this time, or of so many, or so large.
constexpr microseconds answers_time{100};
constexpr std::size_t answers_count = 64;
constexpr std::size_t answers_bytes = 64 << 10;
/// The same if the task after it does not end.
constexpr milliseconds answer_limit{1};
/// Then tasks behind the one that runs are others'.
constexpr milliseconds slow_task{5};
/// A shorter wait is nothing that others could use.
constexpr milliseconds blocked_limit{1};
/// How late it may be noticed that the objects of this process are gone.
constexpr std::chrono::seconds objects_turn{1};
constexpr std::size_t kept_cancels = 256;

/// The call that a task is, as far as its context knows.
class RunningTask final : public IncomingCallState {
  void take_answer(CallAnswer) override {}
};

}  // namespace

Result<std::shared_ptr<TaskWorker>> TaskWorker::start(ActorContext& context, Host host) {
  std::shared_ptr<TaskWorker> worker(new TaskWorker(context, std::move(host)));
  try {
    worker->runner_ = std::thread([raw = worker.get()] { raw->run(); });
    worker->helper_ = std::thread([raw = worker.get()] { raw->help(); });
  } catch (const std::system_error& error) {
    worker->stop();
    return fail(ErrorCode::resource_exhausted, "cannot start a thread for tasks: {}", error.what());
  }
  return worker;
}

TaskWorker::~TaskWorker() { stop(); }

void TaskWorker::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    work_.notify_all();
    help_.notify_all();
  }
  for (std::thread* thread : {&runner_, &helper_}) {
    if (thread->joinable()) thread->join();
  }
}

void TaskWorker::deliver(IncomingCall call) {
  const auto answered = [&](const auto& message) {
    call.answer(message.ok() ? Result<Bytes>(Bytes{}) : message.error());
    return message.ok();
  };
  switch (static_cast<WorkerMethod>(call.method)) {
    case WorkerMethod::run:
      if (auto batch = decode<TaskBatch>(call.arguments); answered(batch)) take(*std::move(batch));
      return;
    case WorkerMethod::cancel:
      if (const auto task = decode<TaskId>(call.arguments); answered(task)) cancel(*task);
      return;
  }
  call.answer(fail(ErrorCode::unsupported, "a task worker has no method {}", call.method));
}

void TaskWorker::take(TaskBatch batch) {
  const std::lock_guard lock(mutex_);
  report_.worker = batch.worker;
  for (auto& item : batch.items) queue_.push_back(std::move(item));
  if (std::exchange(is_resting_, false)) work_.notify_one();
  if (running_since_) wake_helper();
}

void TaskWorker::cancel(TaskId task) {
  std::shared_ptr<IncomingCallState> running;
  {
    const std::lock_guard lock(mutex_);
    if (running_ == task) {
      running = token_.state();
    } else {
      cancelled_.push_back(task);
      if (cancelled_.size() > kept_cancels) cancelled_.pop_front();
    }
  }
  if (running) running->cancel();
}

Result<Bytes> TaskWorker::run_task(const TaskBatch::Item& item, const CancelToken& token) {
  if (token.is_cancelled()) {
    return fail(ErrorCode::cancelled, "the task was cancelled before it began");
  }
  TROUPE_TRY(const auto function, TaskFunctions::find(item.function));
  const CallScope scope(item.deadline, token);
  return function(context_, item.arguments, host_.hub);
}

void TaskWorker::run() {
  ::pthread_setname_np(::pthread_self(), "tasks");
  set_blocking_observer(this);
  std::unique_lock lock(mutex_);
  auto now = Clock::now();
  while (true) {
    if (queue_.empty() && !is_stopping_) {
      is_resting_ = true;
      work_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
      is_resting_ = false;
      now = Clock::now();
    }
    if (is_stopping_) return;
    TaskBatch::Item item = std::move(queue_.front());
    queue_.pop_front();
    running_since_ = now;
    running_ = item.task;
    const CancelToken token(std::make_shared<RunningTask>());
    token_ = token;
    const bool is_cancelled = std::erase(cancelled_, item.task) > 0;
    if (!queue_.empty() || !report_.answers.empty()) wake_helper();
    lock.unlock();
    if (is_cancelled) token.state()->cancel();
    Registrations registrations;
    auto answer = [&] {
      const RegistrationScope registering;
      auto result = run_task(item, token);
      registrations = registering.open();
      return result;
    }();
    item.arguments = {};
    // The submitter keeps the references to objects among the arguments until it has the answer.
    if (const auto objects = host_.hub->objects(); objects && !registrations.empty()) {
      wait_until_registered(*objects, registrations, registering_limit);
    }
    const auto end = Clock::now();
    lock.lock();
    report_.busy_ns += static_cast<std::uint64_t>((end - *running_since_).count());
    running_since_.reset();
    running_ = 0;
    blocked_since_.reset();
    told_blocked_ = false;
    now = end;
    const std::size_t bytes = answer.ok() ? answer->size() : 0;
    if (bytes > answers_bytes && !report_.answers.empty()) send_report(lock);  // it goes alone
    if (report_.answers.empty()) oldest_answer_ = now;
    add_answer(item.task, std::move(answer));
    if (queue_.empty() || report_.answers.size() >= answers_count ||
        report_bytes_ >= answers_bytes || now - sent_at_ >= answers_time) {
      sent_at_ = now;
      send_report(lock);
      now = Clock::now();
    }
  }
}

void TaskWorker::add_answer(TaskId task, Result<Bytes> answer) {
  report_.answers.push_back(TaskReport::Answer::of(task, std::move(answer)));
  report_bytes_ += report_.answers.back().answer.size();
}

bool TaskWorker::has_objects() const {
  const auto objects = host_.hub->objects();
  // On a thread of the driver's own process, whose objects do not end with this worker.
  if (!objects || host_.service.endpoint == host_.hub->endpoint()) return false;
  const ObjectCounts counts = objects->counts();
  return counts.owned > 0 || counts.held > 0;
}

void TaskWorker::send_report(std::unique_lock<std::mutex>& lock) {
  TaskReport report = std::exchange(report_, TaskReport{.worker = report_.worker});
  report_bytes_ = 0;
  lock.unlock();
  report.has_objects = has_objects();
  const TaskWorkerId worker = report.worker;
  const TaskId only = report.answers.size() == 1 ? report.answers.front().task : 0;
  call_service(report, [this, worker, only](const Error& why) {
    if (why.code != ErrorCode::invalid_argument || only == 0) return lose_service(why);
    TaskReport refusal{.worker = worker,
                       .has_objects = has_objects()};  // the answer is too large for a message
    refusal.answers.push_back(TaskReport::Answer::of(only, why));
    call_service(refusal, [this](const Error& again) { lose_service(again); });
  });
  lock.lock();
  if (!report.has_objects) return looks_at_.reset();
  if (looks_at_) return;
  looks_at_ = Clock::now() + objects_turn;
  wake_helper();
}

void TaskWorker::call_service(const TaskReport& report,
                              std::function<void(const Error&)> on_failure) {
  host_.hub->call(
      host_.service, static_cast<std::uint16_t>(ServiceMethod::report), encode(report),
      [weak = weak_from_this(), on_failure = std::move(on_failure)](const Result<Bytes>& sent) {
        if (sent.ok() || sent.error().code == ErrorCode::cancelled) return;
        if (const auto self = weak.lock()) on_failure(sent.error());
      });
}

void TaskWorker::lose_service(const Error& why) {
  log::error("answers of tasks do not reach the driver: {}", why.message);
  if (host_.on_lost) host_.on_lost();
}

void TaskWorker::wake_helper() {
  if (std::exchange(helper_rests_, false)) help_.notify_one();
}

std::optional<TaskWorker::Clock::time_point> TaskWorker::next_help(Clock::time_point now) const {
  std::optional<Clock::time_point> due;
  const auto consider = [&](Clock::time_point time) { due = due ? std::min(*due, time) : time; };
  if (!running_since_) return due;
  if (!report_.answers.empty()) consider(oldest_answer_ + answer_limit);
  if (!queue_.empty()) consider(told_blocked_ ? now : *running_since_ + slow_task);
  if (blocked_since_ && !told_blocked_) consider(*blocked_since_ + blocked_limit);
  return due;
}

void TaskWorker::rest_helper(std::unique_lock<std::mutex>& lock) {
  const auto is_woken = [this] { return is_stopping_ || !helper_rests_; };
  helper_rests_ = true;
  if (!looks_at_) {
    help_.wait(lock, is_woken);
  } else if (const auto until = *looks_at_; !help_.wait_until(lock, until, is_woken) && looks_at_) {
    looks_at_ = Clock::now() + objects_turn;
    lock.unlock();
    const bool has_some = has_objects();
    lock.lock();
    if (!has_some && looks_at_) send_report(lock);
  }
  helper_rests_ = false;
}

void TaskWorker::help() {
  ::pthread_setname_np(::pthread_self(), "task reports");
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const auto now = Clock::now();
    const auto due = next_help(now);
    if (!due) {
      rest_helper(lock);
      continue;
    }
    if (*due > now) {
      help_.wait_until(lock, *due);
      continue;
    }
    const bool is_blocked = blocked_since_ && now - *blocked_since_ >= blocked_limit;
    if (is_blocked && !told_blocked_) report_.is_blocked = told_blocked_ = true;
    if (told_blocked_ || now - *running_since_ >= slow_task) {
      for (const auto& item : queue_) report_.returned.push_back(item.task);
      queue_.clear();
    }
    send_report(lock);
  }
}

void TaskWorker::begin_blocking() noexcept {
  const std::lock_guard lock(mutex_);
  if (!running_since_) return;
  if (!told_blocked_) blocked_since_ = Clock::now();
  wake_helper();
}

void TaskWorker::end_blocking() noexcept {
  const std::lock_guard lock(mutex_);
  if (!told_blocked_) blocked_since_.reset();
}

}  // namespace troupe
