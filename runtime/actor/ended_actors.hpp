#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/actor/actor_down.hpp"

namespace troupe {

/// How the latest of a job's actors ended. Nothing is kept of older ones. Not synchronised.
class EndedActors {
 public:
  using Clock = std::chrono::system_clock;
  struct End {
    ActorDown down;
    Clock::time_point at;
  };

  explicit EndedActors(std::size_t remembered) : remembered_(remembered) {}

  void add(ActorDown down, Clock::time_point now = Clock::now()) {
    const ActorId id = down.id;
    if (!ends_.emplace(id, End{std::move(down), now}).second) return;
    order_.push_back(id);
    if (order_.size() <= remembered_) return;
    ends_.erase(order_.front());
    order_.pop_front();
  }
  /// Empty if the actor is not among the latest.
  std::optional<ActorDown> find(ActorId id) const {
    const auto found = ends_.find(id);
    return found == ends_.end() ? std::nullopt : std::optional(found->second.down);
  }
  /// The last ends, at most `count`, the latest first.
  std::vector<End> latest(std::size_t count) const {
    std::vector<End> ends;
    for (auto id = order_.rbegin(); id != order_.rend() && ends.size() < count; ++id) {
      ends.push_back(ends_.at(*id));
    }
    return ends;
  }

 private:
  const std::size_t remembered_;
  std::unordered_map<ActorId, End> ends_;
  std::deque<ActorId> order_;  ///< the keys of ends_, oldest first
};

}  // namespace troupe
