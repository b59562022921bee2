#include "runtime/call/callback_thread.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

#include <pthread.h>

#include "runtime/call/callback.hpp"

namespace troupe {

/// Shared with the thread, which may outlive the owner if that is destroyed by a callback.
struct CallbackThread::State {
  struct Due {
    ActorId source = 0;
    std::size_t bytes = 0;
    std::shared_ptr<DueCallback> callback;
  };

  explicit State(std::function<void(ActorId)> begin) : on_begin(std::move(begin)) {}

  void run() {
    ::pthread_setname_np(::pthread_self(), "callbacks");
    std::unique_lock lock(mutex);
    while (true) {
      is_idle = true;
      changed.wait(lock, [this] { return is_stopping || !due.empty(); });
      is_idle = false;
      if (due.empty()) return;
      Due first = std::move(due.front());
      due.pop_front();
      const auto found = backlogs.find(first.source);
      found->second.bytes -= first.bytes;
      if (--found->second.callbacks == 0) backlogs.erase(found);
      --count;
      lock.unlock();
      on_begin(first.source);
      first.callback->run_due();
      first = {};  // a callback's destructor may take locks
      lock.lock();
    }
  }

  const std::function<void(ActorId)> on_begin;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Due> due;
  std::unordered_map<ActorId, Backlog> backlogs;
  std::atomic<std::size_t> count = 0;  ///< due, of all sources
  bool is_idle = false;
  bool is_stopping = false;
  std::thread thread;
};

Result<std::shared_ptr<CallbackThread>> CallbackThread::start(
    std::function<void(ActorId)> on_begin) {
  auto state = std::make_shared<State>(std::move(on_begin));
  try {
    std::lock_guard lock(state->mutex);
    state->thread = std::thread([state] { state->run(); });
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
  return std::this_thread::get_id() == state_->thread.get_id();
}

void CallbackThread::stop() {
  std::thread ended;
  {
    std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->is_stopping, true)) return;
    state_->changed.notify_all();
    if (on_own_thread()) return state_->thread.detach();
  }
  state_->thread.join();
}

}  // namespace troupe
