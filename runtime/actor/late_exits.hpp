#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// The actors of a process that have asked to end themselves. One that has not ended after a while
/// is given up: its method does not return, or its destructor does not, as when its device has
/// failed. Takes the time as an argument; time in which the process was stopped does not count
/// (Deadline). Not synchronised.
class LateExits {
 public:
  using Clock = Deadline::Clock;

  explicit LateExits(std::chrono::milliseconds grace) : grace_(grace) {}

  /// The actor has asked to end itself. The first reason counts.
  void ask(ActorId actor, const std::string& reason, Clock::time_point now);
  /// The actor has ended. False if it was given up before.
  bool note_end(ActorId actor);

  struct Late {
    ActorId actor = 0;
    std::string reason;
  };
  /// Returns those that are to be given up now, each once.
  std::vector<Late> take_late(Clock::time_point now);
  bool is_given_up(ActorId actor) const;
  /// How long take_late() may wait for its next call; none if nobody is awaited.
  std::optional<std::chrono::milliseconds> left(Clock::time_point now);

 private:
  struct Exit {
    Deadline limit;
    std::string reason;
    bool is_given_up = false;
  };

  const std::chrono::milliseconds grace_;
  std::map<ActorId, Exit> exits_;
};

}  // namespace troupe
