#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// How the latest of a job's actors ended. Nothing is kept of older ones. Not synchronised.
class EndedActors {
 public:
  explicit EndedActors(std::size_t remembered) : remembered_(remembered) {}

  void add(ActorDown down) {
    const ActorId id = down.id;
    if (!downs_.emplace(id, std::move(down)).second) return;
    order_.push_back(id);
    if (order_.size() <= remembered_) return;
    downs_.erase(order_.front());
    order_.pop_front();
  }
  /// Empty if the actor is not among the latest.
  std::optional<ActorDown> find(ActorId id) const {
    const auto found = downs_.find(id);
    return found == downs_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  const std::size_t remembered_;
  std::unordered_map<ActorId, ActorDown> downs_;
  std::deque<ActorId> order_;  ///< the keys of downs_, oldest first
};

}  // namespace troupe
