#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"
#include "runtime/call/callback.hpp"

namespace troupe {

/// The watches of one process. It remembers no deaths, but asks supervision to report the end of
/// each actor that is watched. Callbacks run on one thread of its own, in the order of the deaths.
/// Callable from any thread.
class WatchTable {
 public:
  /// Has the end of an actor reported by on_down, or returns how it ended if that is known.
  using Follow = std::function<std::optional<ActorDown>(ActorId actor)>;
  /// `grace`: how long stop() waits for a callback that runs.
  explicit WatchTable(Follow follow, std::chrono::milliseconds grace = callback_grace);
  ~WatchTable();  ///< stops
  WatchTable(const WatchTable&) = delete;
  WatchTable& operator=(const WatchTable&) = delete;

  WatchToken watch(ActorId actor, DownCallback callback) {
    return watch(actor, std::move(callback), false);
  }
  /// The same for the runtime's own callbacks, which do not block: it is called by whoever reports
  /// the end, so no other callback delays it. It may still be called just after its token is gone
  /// or callbacks were stopped.
  WatchToken watch_at_once(ActorId actor, DownCallback callback) {
    return watch(actor, std::move(callback), true);
  }
  /// Notifies all watchers of the actor. Unless it restarts, they watch no longer.
  void on_down(const ActorDown& down);
  /// Stops callbacks: none begins after this. One that runs and does not return in time is left
  /// behind with its thread, and an error in the log says whose end it was told of; what it
  /// captured lives until it returns, and its token waits for it as always. A callback that calls
  /// this is not waited for.
  void stop();

 private:
  struct State;
  WatchToken watch(ActorId actor, DownCallback callback, bool is_called_at_once);
  const Follow follow_;
  const std::chrono::milliseconds grace_;
  const std::shared_ptr<State> state_;
};

}  // namespace troupe
