#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/actor/actor_down.hpp"
#include "runtime/base/last_lines.hpp"

namespace troupe {

/// Causes of losses that the driver alone knows, beside what the runtime reports. Callable from any
/// thread.
class LossNotes {
 public:
  /// That incarnation of the actor is about to be killed: why, as a clause ("it was killed as it
  /// hung: ...").
  void note_kill(ActorId actor, std::uint32_t incarnation, std::string why) {
    const std::lock_guard lock(mutex_);
    kills_[{actor, incarnation}] = std::move(why);
  }

  /// Adds to a loss why it was killed from here, and the last lines of its log, which the next
  /// incarnation goes on with.
  ActorDown completed(ActorDown down) {
    down.log_lines = last_lines(down.log_path);
    const std::lock_guard lock(mutex_);
    const auto kill = kills_.find({down.id, down.incarnation});
    if (kill == kills_.end()) return down;
    down.message += "; " + kill->second;
    kills_.erase(kill);
    return down;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<ActorId, std::uint32_t>, std::string> kills_;
};

}  // namespace troupe
