#include "runtime/task/task_worker.hpp"

#include <system_error>

#include <pthread.h>

#include "runtime/base/log.hpp"
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
/// So long an answer waits until references that came with its task are registered.
constexpr std::chrono::seconds registering_limit{10};

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
  auto batch = decode<TaskBatch>(call.arguments);
  call.answer(batch.ok() ? Result<Bytes>(Bytes{}) : batch.error());
  if (!batch.ok()) return;
  const std::lock_guard lock(mutex_);
  report_.worker = batch->worker;
  for (auto& item : batch->items) queue_.push_back(std::move(item));
  if (std::exchange(is_resting_, false)) work_.notify_one();
  if (running_since_) wake_helper();
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
    if (!queue_.empty() || !report_.answers.empty()) wake_helper();
    lock.unlock();
    const auto function = TaskFunctions::find(item.function);
    auto answer = function.ok() ? (*function)(context_, item.arguments, host_.hub)
                                : Result<Bytes>(function.error());
    item.arguments = {};
    // The submitter keeps the references to objects among the arguments until it has the answer.
    if (const auto objects = host_.hub->objects(); objects && objects->is_registering()) {
      wait_until_registered(*objects, registering_limit);
    }
    const auto end = Clock::now();
    lock.lock();
    report_.busy_ns += static_cast<std::uint64_t>((end - *running_since_).count());
    running_since_.reset();
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
  TaskReport::Answer& added = report_.answers.emplace_back();
  added.task = task;
  added.ok = answer.ok();
  if (answer.ok()) {
    added.answer = *std::move(answer);
  } else {
    added.code = answer.error().code;
    const auto text = std::as_bytes(std::span(answer.error().message));
    added.answer.assign(text.begin(), text.end());
  }
  report_bytes_ += added.answer.size();
}

void TaskWorker::send_report(std::unique_lock<std::mutex>& lock) {
  TaskReport report = std::exchange(report_, TaskReport{.worker = report_.worker});
  report_bytes_ = 0;
  lock.unlock();
  const TaskWorkerId worker = report.worker;
  const TaskId only = report.answers.size() == 1 ? report.answers.front().task : 0;
  call_service(report, [this, worker, only](const Error& why) {
    if (why.code != ErrorCode::invalid_argument || only == 0) return lose_service(why);
    TaskReport refusal{.worker = worker};  // the answer is too large for a message
    const auto text = std::as_bytes(std::span(why.message));
    refusal.answers.push_back({only, false, why.code, Bytes(text.begin(), text.end())});
    call_service(refusal, [this](const Error& again) { lose_service(again); });
  });
  lock.lock();
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

void TaskWorker::help() {
  ::pthread_setname_np(::pthread_self(), "task reports");
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const auto now = Clock::now();
    const auto due = next_help(now);
    if (!due) {
      helper_rests_ = true;
      help_.wait(lock, [this] { return is_stopping_ || !helper_rests_; });
      helper_rests_ = false;
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
