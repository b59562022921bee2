#include "runtime/actor/actor_cell.hpp"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <thread>

#include <pthread.h>

#include "runtime/actor/actor_cell_context.hpp"
#include "runtime/base/eager_lock.hpp"
#include "runtime/base/exception_text.hpp"
#include "runtime/call/call_scope.hpp"

namespace troupe {
namespace {

/// Then others that wait for a thread of the pool are served.
constexpr int calls_per_turn = 16;

}  // namespace

/// Has a cancelled call dropped that waits for its turn among coroutines.
class ActorCell::DropQueued final : public ActorTask {
 public:
  DropQueued(ActorCell& cell, CancelToken cancelled)
      : cell_(cell), cancelled_(std::move(cancelled)) {}
  void run_on_actor() noexcept override { cell_.async_->drop(cancelled_); }

 private:
  ActorCell& cell_;  ///< outlives it: tasks do not run after the actor's end
  const CancelToken cancelled_;
};

ActorCell::ActorCell(Private, Start start, std::shared_ptr<const HostServices> services)
    : address_(std::move(start.address)),
      services_(std::move(services)),
      events_(std::move(start.events)),
      making_(std::make_unique<Making>(
          Making{std::move(start.factory), std::move(start.on_made), start.max_concurrency})),
      dedicated_thread_(start.dedicated_thread),
      context_(std::make_unique<Context>(*this, std::move(start.devices))) {
  if (dedicated_thread_) extras();
}

ActorCell::~ActorCell() {
  if (has_room_) services_->mailbox_rooms->give_back();
}

Result<std::shared_ptr<ActorCell>> ActorCell::start(Start start,
                                                    std::shared_ptr<const HostServices> services) {
  const auto cell = std::make_shared<ActorCell>(Private(), std::move(start), std::move(services));
  cell->is_due_ = true;
  if (cell->dedicated_thread_) {
    TROUPE_CHECK(cell->start_thread());
  } else {
    TROUPE_CHECK(cell->services_->threads->start());
    cell->services_->threads->submit(cell);
  }
  return cell;
}

Result<void> ActorCell::start_thread() {
  try {
    std::thread([self = shared_from_this()] {
      self->run_on_own_thread();
    }).detach();  // wait_until_over replaces join, because it has a limit
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread for actor '{}': {}",
                address_->name, error.what());
  }
  return {};
}

void ActorCell::run_on_own_thread() {
  ::pthread_setname_np(::pthread_self(), address_->name.substr(0, 15).c_str());
  for (Turn turn = take_turn(); turn != Turn::over; turn = take_turn()) {
    if (turn == Turn::more) continue;
    std::unique_lock lock(mutex_);
    extras_->changed.wait(lock, [this] { return is_due_; });
  }
}

void ActorCell::run_task() noexcept {
  TaskPool& threads = *services_->threads;
  Turn turn = take_turn();
  while (turn == Turn::more && threads.has_empty_queue()) turn = take_turn();
  if (turn == Turn::more) threads.submit(shared_from_this());
}

void ActorCell::wake(std::unique_lock<std::mutex> lock) {
  if (std::exchange(is_due_, true)) return;
  lock.unlock();
  if (dedicated_thread_) return extras_->changed.notify_all();
  services_->threads->submit(shared_from_this());
}

ActorCell::Turn ActorCell::take_turn() {
  if (!actor_ && !make()) return Turn::over;
  for (int calls = 0; calls < calls_per_turn; ++calls) {
    if (is_ending_) return end();
    if (run_taken_task() || (async_ && async_->begin_queued())) continue;
    if (taken_.empty()) {
      const Turn left = take_calls();
      if (left == Turn::over) return end();
      if (left == Turn::idle) return Turn::idle;
      if (taken_.empty()) continue;
    }
    IncomingCall call = taken_.pop();
    if (async_) {
      async_->begin(std::move(call));
    } else {
      run_call(call);
    }
  }
  return Turn::more;
}

void ActorCell::run_call(IncomingCall& call) noexcept {
  if (!may_begin(call, address_->name)) return load_->on_dropped(call.method);
  const auto running = load_->begin(call.method, call.id, call.queued_ns);
  const CallScope scope(call);
  const RegistrationScope registering;
  CallAnswer answer =
      load_->end(running, actor_->run(call.method, call.arguments, services_->hub->weak()));
  if (is_killed_) return refuse(call);
  services_->answer(call.answer, std::move(answer), registering.open());
}

bool ActorCell::run_taken_task() {
  if (!has_taken_tasks_) return false;
  auto& taken = extras_->taken_tasks;
  const auto task = std::move(taken[extras_->next_task++]);
  if (extras_->next_task == taken.size()) {
    has_taken_tasks_ = false;
    taken.clear();
  }
  task->run_on_actor();
  return true;
}

const std::shared_ptr<ActorTimers>& ActorCell::timers() {
  const std::lock_guard lock(mutex_);
  auto& timers = extras().timers;
  if (!timers) timers = std::make_shared<ActorTimers>(weak_from_this(), services_->hub);
  return timers;
}

Result<void> ActorCell::prepare_concurrency() {
  const ClassConcurrency concurrency = actor_->concurrency();
  const int asked = making_->max_concurrency;
  const auto limit_or = [asked](std::size_t limit) {
    return asked > 0 ? static_cast<std::size_t>(asked) : limit;
  };
  if (concurrency.has_coroutines) {
    has_coroutines_ = true;
    async_ = std::make_unique<AsyncCalls>(
        *actor_,
        AsyncCalls::Options{
            weak_from_this(), timers(), services_->hub, load_, address_->name, limit_or(1000),
            [this](IncomingCall& call) { run_call(call); },
            [this](const CallReply& reply, CallAnswer answer, const Registrations& registrations) {
              services_->answer(reply, std::move(answer), registrations);
            }});
  } else if (asked > 1 || !concurrency.limits.empty()) {
    TROUPE_CHECK(services_->threads->start());
    const std::lock_guard lock(mutex_);
    threaded_ = std::make_unique<ThreadedCalls>(
        ThreadedCalls::Options{weak_from_this(), services_->threads, limit_or(1), concurrency});
  }
  return {};
}

bool ActorCell::make() {
  const auto made = [this]() -> Result<void> {
    try {
      const RegistrationScope registering;
      TROUPE_TRY(actor_, making_->factory(*context_));
      // Whoever spawns it keeps the objects among the arguments until it is there.
      if (services_->objects) {
        wait_until_registered(*services_->objects, registering.open(), registering_limit);
      }
      load_ = services_->hub->observer()->add_actor(address_, actor_->method_names());
      return prepare_concurrency();
    } catch (...) {
      return fail(ErrorCode::exception, "its construction threw {}",
                  current_exception_description());
    }
  }();
  making_->factory = nullptr;
  if (made.ok()) {
    const std::lock_guard lock(mutex_);
    if (!is_killed_) services_->hub->add_target(address_->id, shared_from_this());
  } else {
    refuse_all();
    actor_.reset();
  }
  const auto making = std::move(making_);
  if (!is_killed_) making->on_made(made);
  if (!made.ok()) note_over();
  return made.ok();
}

ActorCell::Turn ActorCell::take_calls() {
  CallQueue<> freed, freed_too;  // without the lock
  const auto lock = lock_eagerly(mutex_);
  if (is_ending_) return Turn::over;
  const bool has_tasks = extras_ && !extras_->tasks.empty();
  if (!mailbox_.empty() || has_tasks) {
    taken_.swap(mailbox_);
    if (has_tasks) {
      extras_->taken_tasks.swap(extras_->tasks);
      extras_->next_task = 0;
      has_taken_tasks_ = true;
    }
    return Turn::more;
  }
  if (!dedicated_thread_) give_up_rooms(freed, freed_too);
  is_due_ = false;  // from now on another thread may take a turn
  return Turn::idle;
}

void ActorCell::give_up_rooms(CallQueue<>& of_taken, CallQueue<>& of_mailbox) {
  constexpr std::size_t kept = 2;  // calls
  if (mailbox_.capacity() < taken_.capacity()) mailbox_.swap(taken_);
  taken_.swap(of_taken);
  if (mailbox_.capacity() == 0) return;
  if (!has_room_) has_room_ = services_->mailbox_rooms->take();
  if (!has_room_ || mailbox_.capacity() > kept) mailbox_.swap(of_mailbox);
}

ActorCell::Turn ActorCell::end() {
  {
    // Under the lock, so that the target is not that of the next incarnation, which follows kill().
    const std::lock_guard lock(mutex_);
    if (!is_killed_) services_->hub->remove_target(address_->id);
  }
  refuse_all();
  if (threaded_) {
    const std::lock_guard lock(mutex_);
    if (!threaded_->is_idle()) {
      is_due_ = false;  // on_thread_left wakes it
      return Turn::idle;
    }
  }
  if (async_) async_->end(ended());
  async_.reset();
  load_.reset();
  actor_.reset();
  std::optional<std::string> reason;
  {
    std::lock_guard lock(mutex_);
    if (extras_) reason = extras_->exit_reason;
  }
  if (!is_killed_) events_->on_ended(*address_, reason.has_value(), reason.value_or(""));
  note_over();
  return Turn::over;
}

Error ActorCell::ended() const {
  return fail(ErrorCode::actor_died, "actor '{}' {}", address_->name,
              is_killed_ ? "was killed" : "has ended");
}

void ActorCell::deliver(IncomingCall call) {
  auto lock = lock_eagerly(mutex_);
  if (!closed_) {
    call.queued_ns = load_->on_delivered();
    if (threaded_) {
      lock.unlock();
      return threaded_->deliver(call) ? void() : refuse(call);
    }
    mailbox_.push(std::move(call));
    return wake(std::move(lock));
  }
  lock.unlock();
  refuse(call);
}

void ActorCell::drop(const CancelToken& cancelled) {
  std::optional<IncomingCall> dropped;  // destroyed without the lock
  std::unique_lock lock(mutex_);
  dropped = threaded_ ? threaded_->take(cancelled) : mailbox_.take(cancelled);
  if (dropped) return load_->on_dropped(dropped->method);
  if (!has_coroutines_ || closed_) return;
  extras().tasks.push_back(std::make_shared<DropQueued>(*this, cancelled));
  wake(std::move(lock));
}

void ActorCell::refuse(const IncomingCall& call) const {
  call.answer(CallAnswer::of_ended_actor(ended()));
}

void ActorCell::post(std::shared_ptr<ActorTask> task) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  if (threaded_) return threaded_->post(std::move(task));
  extras().tasks.push_back(std::move(task));
  wake(std::move(lock));
}

void ActorCell::on_thread_left() {
  std::unique_lock lock(mutex_);
  wake(std::move(lock));
}

void ActorCell::refuse_all() {
  std::vector<IncomingCall> refused = taken_.take_all();
  has_taken_tasks_ = false;
  std::vector<std::shared_ptr<ActorTask>> dropped, dropped_too;  // destroyed without the lock
  std::shared_ptr<ActorTimers> timers;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    std::ranges::move(mailbox_.take_all(), std::back_inserter(refused));
    if (extras_) {
      dropped.swap(extras_->tasks);
      dropped_too.swap(extras_->taken_tasks);
      timers = extras_->timers;
    }
  }
  if (timers) timers->close();
  if (threaded_) std::ranges::move(threaded_->close(), std::back_inserter(refused));
  for (const auto& call : refused) refuse(call);
}

void ActorCell::stop() {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  wake(std::move(lock));
}

void ActorCell::kill() {
  std::vector<IncomingCall> refused;
  std::unique_lock lock(mutex_);
  if (over_ || is_killed_) return;
  is_killed_ = is_ending_ = closed_ = true;
  refused = mailbox_.take_all();
  wake(std::move(lock));
  services_->hub->abandon_target(address_->id, *this);
  for (auto& call : refused) {
    refuse(call);
  }
}

void ActorCell::request_exit(const std::string& reason) {
  std::unique_lock lock(mutex_);
  auto& first_reason = extras().exit_reason;
  const bool is_first = !first_reason;
  if (is_first) first_reason = reason;
  is_ending_ = true;
  wake(std::move(lock));
  if (is_first && events_->on_exit_asked) events_->on_exit_asked(*address_, reason);
}

void ActorCell::note_over() {
  std::lock_guard lock(mutex_);
  over_ = true;
  if (extras_) extras_->changed.notify_all();
}

bool ActorCell::wait_until_over(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (over_) return true;
  return extras().changed.wait_for(lock, timeout, [this] { return over_; });
}

}  // namespace troupe
