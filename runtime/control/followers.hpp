#pragma once

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Who is to hear of an actor's end: those who call or watch it, not everybody. `Who` names a node
/// (in the driver) or a process (in an agent). Each call costs as many steps as it names actors or
/// followers. Not synchronised.
template <class Who>
class Followers {
 public:
  /// False if the actor had a follower before.
  bool add(ActorId actor, Who who) {
    auto& all = of_[actor];
    if (all.insert(who).second) followed_by_[who].insert(actor);
    return all.size() == 1;
  }
  std::set<Who> of(ActorId actor) const {
    const auto found = of_.find(actor);
    return found == of_.end() ? std::set<Who>() : found->second;
  }
  /// Returns the actor's followers and forgets them.
  std::set<Who> take(ActorId actor) {
    auto node = of_.extract(actor);
    if (node.empty()) return {};
    for (const Who who : node.mapped()) forget(followed_by_, who, actor);
    return std::move(node.mapped());
  }
  /// Forgets a follower that has ended.
  void remove(Who who) {
    const auto node = followed_by_.extract(who);
    if (node.empty()) return;
    for (const ActorId actor : node.mapped()) forget(of_, actor, who);
  }
  /// How many actors have followers.
  std::size_t size() const { return of_.size(); }

 private:
  template <class Map, class Key, class Value>
  static void forget(Map& map, const Key& key, const Value& value) {
    const auto found = map.find(key);
    if (found == map.end()) return;
    found->second.erase(value);
    if (found->second.empty()) map.erase(found);
  }

  std::unordered_map<ActorId, std::set<Who>> of_;
  std::unordered_map<Who, std::unordered_set<ActorId>> followed_by_;
};

}  // namespace troupe
