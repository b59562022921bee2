#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
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
  /// The last ends, at most `count`, the latest first: of all, or of those before `before`, none if
  /// that is forgotten.
  std::vector<End> latest(std::size_t count, ActorId before = 0) const {
    std::vector<End> ends;
    auto id = order_.rbegin();
    if (before != 0) id = std::find(id, order_.rend(), before);
    if (before != 0 && id != order_.rend()) ++id;
    for (; id != order_.rend() && ends.size() < count; ++id) ends.push_back(ends_.at(*id));
    return ends;
  }
  /// The last end for which this is true; null if there is none. Valid until the next add.
  const End* find_last(const std::function<bool(const End&)>& is_meant) const {
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      const End& end = ends_.at(*id);
      if (is_meant(end)) return &end;
    }
    return nullptr;
  }

 private:
  const std::size_t remembered_;
  std::unordered_map<ActorId, End> ends_;
  std::deque<ActorId> order_;  ///< the keys of ends_, oldest first
};

}  // namespace troupe
