#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// How the latest of the actors ended that a process has called. What is forgotten counts as never
/// called. Not synchronised.
class CalledActors {
 public:
  explicit CalledActors(std::size_t remembered_ends) : remembered_ends_(remembered_ends) {}

  /// False if its end is known already; the first cause counts.
  bool note_end(ActorId id, std::string cause) {
    if (!causes_.emplace(id, std::move(cause)).second) return false;
    ends_.push_back(id);
    if (ends_.size() > remembered_ends_) {
      causes_.erase(ends_.front());
      ends_.pop_front();
    }
    return true;
  }
  /// Returns why the actor is gone, or null: it may live.
  const std::string* cause_of_end(ActorId id) const {
    const auto found = causes_.find(id);
    return found == causes_.end() ? nullptr : &found->second;
  }

 private:
  const std::size_t remembered_ends_;
  std::unordered_map<ActorId, std::string> causes_;
  std::deque<ActorId> ends_;  ///< the keys of causes_, oldest first
};

}  // namespace troupe
