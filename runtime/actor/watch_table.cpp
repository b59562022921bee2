#include "runtime/actor/watch_table.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/base/blocking.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {

struct WatchTable::State {
  using WatchId = std::uint64_t;
  struct Watch {
    DownCallback callback;
    bool is_cancelled = false;
  };
  struct Due {
    std::shared_ptr<Watch> watch;
    std::shared_ptr<const ActorDown> down;
  };

  std::mutex mutex;
  std::condition_variable changed;
  WatchId next = 1;
  std::unordered_map<ActorId, std::map<WatchId, std::shared_ptr<Watch>>> watches;
  std::deque<Due> due;
  const Watch* running = nullptr;
  bool stopping = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !due.empty(); });
      if (stopping) return;
      Due first = std::move(due.front());
      due.pop_front();
      if (!first.watch->is_cancelled) running = first.watch.get();
      lock.unlock();
      if (running != nullptr) run_callback(first.watch->callback, *first.down);
      first = {};  // a callback's destructor may take locks
      lock.lock();
      running = nullptr;
      changed.notify_all();
    }
  }

  void unwatch(ActorId actor, WatchId id, const std::shared_ptr<Watch>& watch) {
    std::unique_lock lock(mutex);
    watch->is_cancelled = true;
    if (const auto found = watches.find(actor); found != watches.end()) {
      found->second.erase(id);
      if (found->second.empty()) watches.erase(found);
    }
    if (std::this_thread::get_id() == thread.get_id()) return;
    if (running != watch.get()) return;
    const BlockingScope waits;
    changed.wait(lock, [&] { return running != watch.get(); });
  }
};

WatchTable::WatchTable(Follow follow)
    : follow_(std::move(follow)), state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

WatchTable::~WatchTable() { stop(); }

void WatchTable::stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

WatchToken WatchTable::watch(ActorId actor, DownCallback callback) {
  auto watch = std::make_shared<State::Watch>(State::Watch{std::move(callback)});
  State::WatchId id = 0;
  bool is_followed = false;
  {
    std::lock_guard lock(state_->mutex);
    id = state_->next++;
    auto& watches = state_->watches[actor];
    is_followed = !watches.empty();
    watches.emplace(id, watch);
  }
  WatchToken token([weak = std::weak_ptr(state_), actor, id, watch = std::move(watch)] {
    if (auto state = weak.lock()) state->unwatch(actor, id, watch);
  });
  if (is_followed) return token;
  if (const auto down = follow_(actor)) on_down(*down);
  return token;
}

void WatchTable::on_down(const ActorDown& down) {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->watches.find(down.id);
  if (found == state_->watches.end()) return;
  const auto shared = std::make_shared<const ActorDown>(down);
  for (const auto& [id, watch] : found->second) state_->due.push_back({watch, shared});
  if (!down.restarts) state_->watches.erase(found);
  state_->changed.notify_all();
}

}  // namespace troupe
