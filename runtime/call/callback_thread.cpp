#include "runtime/call/callback_thread.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

#include <pthread.h>

#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/type_name.hpp"

namespace troupe {

/// Shared with the thread, which may outlive the owner if that is destroyed by a callback.
struct CallbackThread::State {
  struct Due {
    ActorId source = 0;
    std::size_t bytes = 0;
    std::shared_ptr<DueCallback> callback;
  };

  State(std::function<void(ActorId)> begin, std::chrono::milliseconds limit)
      : on_begin(std::move(begin)), grace(limit) {}

  void run() {
    ::pthread_setname_np(::pthread_self(), "callbacks");
    std::unique_lock lock(mutex);
    while (true) {
      is_idle = true;
      changed.wait(lock, [this] { return is_stopping || !due.empty(); });
      is_idle = false;
      if (due.empty()) break;
      Due first = std::move(due.front());
      due.pop_front();
      const auto found = backlogs.find(first.source);
      found->second.bytes -= first.bytes;
      if (--found->second.callbacks == 0) backlogs.erase(found);
      --count;
      ++begun;
      called = &first.callback->called();
      lock.unlock();
      on_begin(first.source);
      first.callback->run_due();
      first = {};  // a callback's destructor may take locks
      lock.lock();
      if (is_stopping) changed.notify_all();
    }
    has_ended = true;
    changed.notify_all();
  }

  /// Waits for what is due; false if a callback does not return in time.
  bool wait_for_end(std::unique_lock<std::mutex>& lock) {
    while (!has_ended) {
      const std::size_t seen = begun;
      if (!wait_for(changed, lock, grace, [&] { return has_ended || begun != seen; })) return false;
    }
    return true;
  }

  const std::function<void(ActorId)> on_begin;
  const std::chrono::milliseconds grace;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Due> due;
  std::unordered_map<ActorId, Backlog> backlogs;
  std::atomic<std::size_t> count = 0;  ///< due, of all sources
  bool is_idle = false;
  bool is_stopping = false;
  bool has_ended = false;                  ///< the thread
  std::size_t begun = 0;                   ///< callbacks
  const std::type_info* called = nullptr;  ///< by the latest that has begun
  std::thread thread;
  std::thread::id own_thread;  ///< `thread`, also once that is detached
};

Result<std::shared_ptr<CallbackThread>> CallbackThread::start(std::function<void(ActorId)> on_begin,
                                                              std::chrono::milliseconds grace) {
  auto state = std::make_shared<State>(std::move(on_begin), grace);
  try {
    std::lock_guard lock(state->mutex);
    state->thread = std::thread([state] { state->run(); });
    state->own_thread = state->thread.get_id();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start the callbacks' thread: {}",
                error.what());
  }
  return std::shared_ptr<CallbackThread>(new CallbackThread(std::move(state)));
}

CallbackThread::~CallbackThread() { stop(); }

void CallbackThread::post(ActorId source, std::size_t bytes, std::shared_ptr<DueCallback> due) {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->is_stopping) {
      Backlog& backlog = state_->backlogs[source];
      ++backlog.callbacks;
      backlog.bytes += bytes;
      ++state_->count;
      state_->due.push_back({source, bytes, std::move(due)});
      if (state_->is_idle) state_->changed.notify_one();
      return;
    }
  }
  run_callback([&] { due->run_due(); });
}

CallbackThread::Backlog CallbackThread::backlog(ActorId source) const {
  if (state_->count == 0) return {};
  std::lock_guard lock(state_->mutex);
  const auto found = state_->backlogs.find(source);
  return found == state_->backlogs.end() ? Backlog{} : found->second;
}

bool CallbackThread::on_own_thread() const {
  return std::this_thread::get_id() == state_->own_thread;
}

void CallbackThread::stop() {
  std::deque<State::Due> dropped;  // destroyed without the lock
  std::string left;
  {
    std::unique_lock lock(state_->mutex);
    if (std::exchange(state_->is_stopping, true)) return;
    state_->changed.notify_all();
    if (on_own_thread()) return state_->thread.detach();
    if (state_->wait_for_end(lock)) {
      lock.unlock();
      return state_->thread.join();
    }
    state_->thread.detach();
    left = type_name(*state_->called);
    dropped.swap(state_->due);
    state_->backlogs.clear();
    state_->count = 0;
  }
  log::error("the callback {} of a future does not return within {} ms: it is left behind{}", left,
             state_->grace.count(),
             dropped.empty() ? "" : fmt::format(", and {} behind it are dropped", dropped.size()));
}

}  // namespace troupe
