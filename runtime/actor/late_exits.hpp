#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/actor_address.hpp"

namespace troupe {

/// The actors of a process that have asked to end themselves. One that has not ended after a while
/// is given up: its method does not return, or its destructor does not, as when its device has
/// failed. Takes the time as an argument; time in which the process was stopped does not count
/// (Deadline). Each call takes time for what it returns, however many others are awaited. Not
/// synchronised.
class LateExits {
 public:
  using Clock = Deadline::Clock;

  explicit LateExits(std::chrono::milliseconds grace) : grace_(grace) {}

  /// The actor has asked to end itself. The first reason counts.
  void ask(ActorId actor, const std::string& reason, Clock::time_point now);
  /// The actor has ended, and is forgotten. False if it was given up before.
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
    Clock::duration limit{};  ///< in awake_
    std::string reason;
    bool is_given_up = false;
  };
  /// Counts the time since the last look, as far as this process ran (see Deadline).
  void look(Clock::time_point now);
  /// The one with the earliest limit; null if nobody is awaited.
  Exit* first_awaited();

  const std::chrono::milliseconds grace_;
  Clock::duration awake_{};
  Clock::time_point seen_{};
  std::unordered_map<ActorId, Exit> exits_;
  /// In the order of their limits: those that are awaited, and some that have ended since.
  struct Awaited {
    ActorId actor = 0;
    Clock::duration limit{};
  };
  std::deque<Awaited> awaited_;
};

}  // namespace troupe
