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
    ActorDown down;
  };

  std::mutex mutex;
  std::condition_variable changed;
  WatchId next = 1;
  std::unordered_map<ActorId, std::map<WatchId, DownCallback>> watches;
  std::unordered_map<ActorId, ActorDown> known;
  std::map<WatchId, Due> due;  ///< in the order of watch ids
  std::deque<WatchId> order;   ///< keys of `due`; may name watches that were cancelled
  WatchId running = 0;
  bool stopping = false;
  std::thread thread;

  void make_due(WatchId id, DownCallback callback, const ActorDown& down) {
    due.emplace(id, Due{std::move(callback), down});
    order.push_back(id);
    changed.notify_all();
  }

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
        run_callback(node.mapped().callback, node.mapped().down);
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

WatchTable::WatchTable() : state_(std::make_shared<State>()) {
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
  std::lock_guard lock(state_->mutex);
  const auto id = state_->next++;
  if (const auto down = state_->known.find(actor); down != state_->known.end()) {
    state_->make_due(id, std::move(callback), down->second);
  } else {
    state_->watches[actor].emplace(id, std::move(callback));
  }
  return WatchToken([weak = std::weak_ptr(state_), actor, id] {
    if (auto state = weak.lock()) state->unwatch(actor, id);
  });
}

bool WatchTable::on_down(const ActorDown& down) {
  std::lock_guard lock(state_->mutex);
  if (!state_->known.emplace(down.id, down).second) return false;
  auto node = state_->watches.extract(down.id);
  if (node.empty()) return true;
  for (auto& [id, callback] : node.mapped()) state_->make_due(id, std::move(callback), down);
  return true;
}

}  // namespace troupe
