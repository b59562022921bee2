#include "runtime/task/task_service.hpp"

#include "runtime/base/blocking.hpp"
#include "runtime/base/log.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {
namespace {

using Clock = TaskScheduler::Clock;
using std::chrono::milliseconds;

/// How long idle workers and the like may be noticed late.
constexpr milliseconds look_around{500};
/// How soon a submitter that waits sees that callbacks have begun.
constexpr milliseconds room_turn{10};

TaskScheduler::Limits limits_of(const TaskLimits& limits) {
  TaskScheduler::Limits made;
  made.idle_limit = limits.idle_limit;
  return made;
}

/// A task that was submitted in this process: what its submitter cancels it by, and what receives
/// its answer.
class LocalTask final : public IncomingCallState, public AnswerReceiver {
 public:
  explicit LocalTask(CallCompletion done) : done_(std::move(done)) {}
  void receive(const std::shared_ptr<AnswerReceiver>& /*self*/, Result<Bytes> answer) override {
    IncomingCallState::answer(std::move(answer));
  }

 private:
  void take_answer(CallAnswer answer) override {
    // The future may keep this state: nothing of what it holds may outlive the answer.
    const auto done = std::exchange(done_, nullptr);
    run_callback(done, Result<Bytes>(std::move(answer)));
  }
  CallCompletion done_;
};

}  // namespace

TaskService::TaskService(Host host)
    : host_(std::move(host)), scheduler_(*host_.rooms, limits_of(host_.limits)) {}

TaskService::~TaskService() { stop(); }

std::shared_ptr<TaskService> TaskService::start(Host host) {
  std::shared_ptr<TaskService> service(new TaskService(std::move(host)));
  service->host_.hub->add_target(task_service_id, service);
  return service;
}

bool TaskService::has_room(std::size_t bytes) const {
  const auto counts = scheduler_.counts();
  const auto due = host_.hub->callbacks()->backlog(task_service_id);
  const std::size_t tasks = counts.tasks + due.callbacks;
  return tasks == 0 || (tasks < host_.limits.max_tasks &&
                        counts.bytes + due.bytes + bytes <= host_.limits.max_bytes);
}

CallTicket TaskService::submit(SubmittedTask task, CallCompletion done) {
  const std::size_t bytes = task.arguments.size();
  std::unique_lock lock(mutex_);
  if (!is_stopped_ && !has_room(bytes)) {
    const BlockingScope waits;
    const auto until = Clock::now() + (runs_callback() ? milliseconds(0) : host_.patience);
    ++waiting_;
    while (!is_stopped_ && !has_room(bytes) && Clock::now() < until) {
      room_.wait_until(lock, std::min(until, Clock::now() + room_turn));
    }
    --waiting_;
    if (!is_stopped_ && !has_room(bytes)) {
      const auto counts = scheduler_.counts();
      lock.unlock();
      run_callback(
          done, fail(ErrorCode::resource_exhausted,
                     "{} tasks with {} bytes of arguments are not answered; the limit is "
                     "{} tasks and {} bytes (ClusterOptions::tasks)",
                     counts.tasks, counts.bytes, host_.limits.max_tasks, host_.limits.max_bytes));
      return {};
    }
  }
  const auto local = std::make_shared<LocalTask>(std::move(done));
  const CancelToken token(local);
  (void)local->begin();  // the scheduler answers, also when it is cancelled
  submit_now(std::move(task), CallCompletion(local), token, std::move(lock));
  return {task_service_id, 0, token};
}

void TaskService::submit_now(SubmittedTask submitted, CallCompletion done, const CancelToken& token,
                             std::unique_lock<std::mutex> lock) {
  TaskScheduler::Task task;
  task.function = submitted.function;
  task.name = std::move(submitted.options.name);
  if (task.name.empty()) task.name = TaskFunctions::name_of(submitted.function);
  task.arguments = std::move(submitted.arguments);
  task.max_retries = task.retries_left = submitted.options.max_retries;
  task.done = std::move(done);
  const auto now = Clock::now();
  if (submitted.options.timeout.count() > 0) task.deadline = now + submitted.options.timeout;
  const bool is_urgent = task.deadline && *task.deadline < wakes_at_;
  if (is_urgent) wakes_at_ = *task.deadline;
  if (!keeper_.joinable() && !is_stopped_) {
    wakes_at_ = now;
    keeper_ = std::jthread([this](const std::stop_token& stop) { keep_time(stop); });
  }
  const TaskId id =
      scheduler_.submit(std::move(task), submitted.options.resources, submitted.options.node, now);
  if (is_urgent) time_.notify_all();
  token.state()->set_target_id(id);
  act(std::move(lock));
  if (token.is_cancelled()) on_cancelled(token);
}

void TaskService::on_cancelled(const CancelToken& cancelled) {
  std::unique_lock lock(mutex_);
  (void)scheduler_.cancel(cancelled.state()->target_id());
  act(std::move(lock));
}

TaskScheduler::Counts TaskService::counts() const {
  const std::lock_guard lock(mutex_);
  return scheduler_.counts();
}

void TaskService::act(std::unique_lock<std::mutex> lock) {
  if (const auto look = scheduler_.next_look(); look && *look < wakes_at_) {
    wakes_at_ = *look;
    time_.notify_all();
  }
  if (!scheduler_.has_orders()) return;
  auto orders = scheduler_.take_orders();
  std::vector<ActorAddress> receivers(orders.batches.size());
  for (std::size_t i = 0; i < orders.batches.size(); ++i) {
    receivers[i] = workers_[orders.batches[i].worker];
  }
  std::vector<std::pair<ActorAddress, TaskId>> cancelled;
  for (const auto& [worker, task] : orders.cancels) {
    if (const auto found = workers_.find(worker); found != workers_.end()) {
      cancelled.emplace_back(found->second, task);
    }
  }
  std::vector<ActorAddress> stopped;
  for (const TaskWorkerId worker : orders.stops) {
    if (auto node = workers_.extract(worker); !node.empty()) {
      worker_of_actor_.erase(node.mapped().id);
      stopped.push_back(std::move(node.mapped()));
    }
  }
  if (!orders.answers.empty() && waiting_ > 0) room_.notify_all();
  lock.unlock();
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    send(orders.batches[i], receivers[i]);
  }
  for (const auto& [worker, task] : cancelled) {
    run_callback([&] {
      host_.hub->call(task_target_of(worker), static_cast<std::uint16_t>(WorkerMethod::cancel),
                      encode(task), [](const Result<Bytes>&) {});
    });
  }
  for (auto& [done, answer] : orders.answers) run_callback(done, std::move(answer));
  for (const auto& start : orders.starts) start_worker(start);
  for (const ActorAddress& worker : stopped) host_.stop_worker(worker, false);
}

void TaskService::start_worker(const TaskScheduler::Orders::Start& start) {
  host_.start_worker(start, [weak = weak_from_this(), id = start.worker](Result<Started> started) {
    const auto self = weak.lock();
    if (!self) return;
    std::unique_lock lock(self->mutex_);
    if (started.ok()) {
      self->workers_[id] = started->actor;
      self->worker_of_actor_[started->actor.id] = id;
      self->scheduler_.on_started(id, started->node, Clock::now());
    } else {
      self->scheduler_.on_start_failed(id, started.error(), Clock::now());
    }
    self->act(std::move(lock));
  });
}

void TaskService::send(const TaskBatch& batch, const ActorAddress& worker) {
  std::vector<TaskId> tasks;
  for (const auto& item : batch.items) tasks.push_back(item.task);
  auto on_sent = [weak = weak_from_this(), id = batch.worker,
                  tasks = std::move(tasks)](const Result<Bytes>& sent) {
    const auto self = weak.lock();
    if (!sent.ok() && self) self->on_not_sent(id, tasks, sent.error());
  };
  Encoder encoder;
  encoder(batch);
  // As in a callback: this may be the thread that brings answers, so it does not wait for credits.
  run_callback([&] {
    host_.hub->call(task_target_of(worker), static_cast<std::uint16_t>(WorkerMethod::run),
                    encoder.take(), std::move(on_sent));
  });
}

void TaskService::on_not_sent(TaskWorkerId worker, const std::vector<TaskId>& tasks,
                              const Error& why) {
  std::unique_lock lock(mutex_);
  if (is_stopped_) return;
  if (why.code == ErrorCode::invalid_argument) {  // too large for a message
    TaskReport report{.worker = worker};
    for (const TaskId task : tasks) report.answers.push_back(TaskReport::Answer::of(task, why));
    scheduler_.on_report(std::move(report), Clock::now());
    return act(std::move(lock));
  }
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;  // its end was reported
  const ActorAddress actor = found->second;
  worker_of_actor_.erase(actor.id);
  workers_.erase(found);
  log::warning("tasks do not reach {}: {}", actor.name, why.message);
  scheduler_.on_lost(worker, why.message, Clock::now());
  act(std::move(lock));
  host_.stop_worker(actor, true);
}

void TaskService::on_down(ActorId actor, const std::string& why) {
  std::unique_lock lock(mutex_);
  const auto found = worker_of_actor_.find(actor);
  if (found == worker_of_actor_.end()) return;
  const TaskWorkerId worker = found->second;
  worker_of_actor_.erase(found);
  workers_.erase(worker);
  scheduler_.on_lost(worker, why, Clock::now());
  act(std::move(lock));
}

void TaskService::on_room() {
  std::unique_lock lock(mutex_);
  scheduler_.on_room(Clock::now());
  act(std::move(lock));
}

void TaskService::deliver(IncomingCall call) {
  switch (static_cast<ServiceMethod>(call.method)) {
    case ServiceMethod::submit: {
      auto task = decode<SubmittedTask>(call.arguments);
      if (!task.ok()) return call.answer(task.error());
      if (!call.answer.begin()) return;  // it was cancelled
      return submit_now(*std::move(task), std::move(call.answer), call.cancel,
                        std::unique_lock(mutex_));
    }
    case ServiceMethod::report: {
      auto report = decode<TaskReport>(call.arguments);
      call.answer(report.ok() ? Result<Bytes>(Bytes{}) : report.error());
      if (!report.ok()) return;
      std::unique_lock lock(mutex_);
      scheduler_.on_report(*std::move(report), Clock::now());
      return act(std::move(lock));
    }
  }
  call.answer(fail(ErrorCode::unsupported, "tasks have no method number {}", call.method));
}

void TaskService::keep_time(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = Clock::now();
    scheduler_.on_time(now);
    if (scheduler_.has_orders()) {
      act(std::move(lock));
      lock = std::unique_lock(mutex_);
      continue;
    }
    wakes_at_ =
        std::min(scheduler_.next_due().value_or(Clock::time_point::max()), now + look_around);
    const auto seen = wakes_at_;
    time_.wait_until(lock, stop, seen, [&] { return wakes_at_ < seen; });
  }
}

void TaskService::stop() {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_stopped_, true)) return;
    scheduler_.stop(fail(ErrorCode::cancelled, "the cluster is shutting down"));
    room_.notify_all();
    act(std::move(lock));
  }
  host_.hub->remove_target(task_service_id);
  if (!keeper_.joinable()) return;
  keeper_.request_stop();
  time_.notify_all();
  keeper_.join();
}

}  // namespace troupe
