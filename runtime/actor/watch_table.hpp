#pragma once

#include <memory>

#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// The watches of one process and the actor ends that it has heard of (kept for the life of the
/// process, a few hundred bytes each). Callbacks run on one thread of its own, in the order of the
/// deaths. Callable from any thread.
class WatchTable {
 public:
  WatchTable();
  ~WatchTable();  ///< stops
  WatchTable(const WatchTable&) = delete;
  WatchTable& operator=(const WatchTable&) = delete;

  WatchToken watch(ActorId actor, DownCallback callback);
  /// Notifies all watchers of the actor; only an actor's first report counts. True for the
  /// first.
  bool on_down(const ActorDown& down);
  /// Stops callbacks: none runs after this returns. Not to be called from a callback.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace troupe
