#include "runtime/actor/watch_table.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/call/callback.hpp"

namespace troupe {

struct WatchTable::State {
  using WatchId = std::uint64_t;
  struct Due {
    DownCallback callback;
    std::shared_ptr<const ActorDown> down;
  };

  std::mutex mutex;
  std::condition_variable changed;
  WatchId next = 1;
  std::unordered_map<ActorId, std::map<WatchId, DownCallback>> watches;
  std::map<WatchId, Due> due;  ///< in the order of watch ids
  std::deque<WatchId> order;   ///< keys of `due`; may name watches that were cancelled
  WatchId running = 0;
  bool stopping = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !order.empty(); });
      if (stopping) return;
      running = order.front();
      order.pop_front();
      auto node = due.extract(running);
      if (!node.empty()) {
        lock.unlock();
        run_callback(node.mapped().callback, *node.mapped().down);
        node = {};
        lock.lock();
      }
      running = 0;
      changed.notify_all();
    }
  }

  void unwatch(ActorId actor, WatchId id) {
    std::unique_lock lock(mutex);
    if (const auto found = watches.find(actor); found != watches.end()) {
      found->second.erase(id);
      if (found->second.empty()) watches.erase(found);
    }
    due.erase(id);
    if (std::this_thread::get_id() == thread.get_id()) return;
    changed.wait(lock, [&] { return running != id; });
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
  State::WatchId id = 0;
  bool is_followed = false;
  {
    std::lock_guard lock(state_->mutex);
    id = state_->next++;
    auto& watches = state_->watches[actor];
    is_followed = !watches.empty();
    watches.emplace(id, std::move(callback));
  }
  WatchToken token([weak = std::weak_ptr(state_), actor, id] {
    if (auto state = weak.lock()) state->unwatch(actor, id);
  });
  if (is_followed) return token;
  if (const auto down = follow_(actor)) on_down(*down);
  return token;
}

void WatchTable::on_down(const ActorDown& down) {
  std::lock_guard lock(state_->mutex);
  auto node = state_->watches.extract(down.id);
  if (node.empty()) return;
  const auto shared = std::make_shared<const ActorDown>(down);
  for (auto& [id, callback] : node.mapped()) {
    state_->due.emplace(id, State::Due{std::move(callback), shared});
    state_->order.push_back(id);
  }
  state_->changed.notify_all();
}

}  // namespace troupe
