#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// The watches of one process. It remembers no deaths, but asks supervision to report the end of
/// each actor that is watched. Callbacks run on one thread of its own, in the order of the deaths.
/// Callable from any thread.
class WatchTable {
 public:
  /// Has the end of an actor reported by on_down, or returns how it ended if that is known.
  using Follow = std::function<std::optional<ActorDown>(ActorId actor)>;
  explicit WatchTable(Follow follow);
  ~WatchTable();  ///< stops
  WatchTable(const WatchTable&) = delete;
  WatchTable& operator=(const WatchTable&) = delete;

  WatchToken watch(ActorId actor, DownCallback callback);
  /// Notifies all watchers of the actor. Unless it restarts, they watch no longer.
  void on_down(const ActorDown& down);
  /// Stops callbacks: none runs after this returns. Not to be called from a callback.
  void stop();

 private:
  struct State;
  const Follow follow_;
  std::shared_ptr<State> state_;
};

}  // namespace troupe
