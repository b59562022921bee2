#include "runtime/actor/watch_table.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/type_name.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

/// Whoever waits for a callback without a limit tells of it so often.
constexpr std::chrono::seconds patience{5};

}  // namespace

/// Shared with the thread, which may outlive the table.
struct WatchTable::State {
  using WatchId = std::uint64_t;
  struct Watch {
    DownCallback callback;
    bool is_called_at_once = false;
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
  std::shared_ptr<const ActorDown> told;  ///< what the running one is told; null: the thread rests
  const std::type_info* called = nullptr;
  Clock::time_point since{};  ///< when it began
  bool stopping = false;
  std::thread thread;
  std::thread::id own_thread;  ///< `thread`, also once that is detached

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !due.empty(); });
      if (stopping) return;
      Due first = std::move(due.front());
      due.pop_front();
      if (!first.watch->is_cancelled) running = first.watch.get();
      told = first.down;
      called = &first.watch->callback.target_type();
      since = Clock::now();
      lock.unlock();
      if (running != nullptr) run_callback(first.watch->callback, *first.down);
      first = {};  // a callback's destructor may take locks
      lock.lock();
      running = nullptr;
      told = nullptr;
      changed.notify_all();
    }
  }

  /// The callback that runs, for people.
  std::string running_text() const {
    const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
    return fmt::format("the callback {} of a watch of actor '{}', which has run for {} ms",
                       type_name(*called), told->name, ran.count());
  }

  void unwatch(ActorId actor, WatchId id, const std::shared_ptr<Watch>& watch) {
    std::unique_lock lock(mutex);
    watch->is_cancelled = true;
    if (const auto found = watches.find(actor); found != watches.end()) {
      found->second.erase(id);
      if (found->second.empty()) watches.erase(found);
    }
    if (std::this_thread::get_id() == own_thread) return;
    while (!wait_for(changed, lock, patience, [&] { return running != watch.get(); })) {
      const std::string text = running_text();
      lock.unlock();
      log::warning("a watch's token waits for {}", text);
      lock.lock();
    }
  }
};

WatchTable::WatchTable(Follow follow, std::chrono::milliseconds grace)
    : follow_(std::move(follow)), grace_(grace), state_(std::make_shared<State>()) {
  std::lock_guard lock(state_->mutex);
  state_->thread = std::thread([state = state_] { state->run(); });
  state_->own_thread = state_->thread.get_id();
}

WatchTable::~WatchTable() { stop(); }

void WatchTable::stop() {
  std::thread ended;
  std::string left;
  {
    std::unique_lock lock(state_->mutex);
    if (std::exchange(state_->stopping, true)) return;
    state_->changed.notify_all();
    if (std::this_thread::get_id() == state_->own_thread) return state_->thread.detach();
    const auto rests = [this] { return state_->told == nullptr; };
    if (!wait_for(state_->changed, lock, grace_, rests)) {
      left = state_->running_text();
      state_->thread.detach();
    }
    ended = std::move(state_->thread);
  }
  if (ended.joinable()) return ended.join();
  log::error("{}, does not return: it is left behind", left);
}

WatchToken WatchTable::watch(ActorId actor, DownCallback callback, bool is_called_at_once) {
  auto watch = std::make_shared<State::Watch>(State::Watch{std::move(callback), is_called_at_once});
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
  std::vector<std::shared_ptr<State::Watch>> at_once;
  {
    std::lock_guard lock(state_->mutex);
    const auto found = state_->watches.find(down.id);
    if (found == state_->watches.end()) return;
    const auto shared = std::make_shared<const ActorDown>(down);
    for (const auto& [id, watch] : found->second) {
      if (watch->is_called_at_once) {
        at_once.push_back(watch);
      } else {
        state_->due.push_back({watch, shared});
      }
    }
    if (!down.restarts) state_->watches.erase(found);
    state_->changed.notify_all();
  }
  for (const auto& watch : at_once) run_callback(watch->callback, down);
}

}  // namespace troupe
