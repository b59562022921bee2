#pragma once

#include <map>
#include <set>
#include <utility>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Who is to hear of an actor's end: those who call or watch it, not everybody. `Who` names a node
/// (in the driver) or a process (in an agent). Not synchronised.
template <class Who>
class Followers {
 public:
  /// False if the actor had a follower before.
  bool add(ActorId actor, Who who) {
    auto& all = of_[actor];
    all.insert(who);
    return all.size() == 1;
  }
  /// Returns the actor's followers and forgets them.
  std::set<Who> take(ActorId actor) {
    auto node = of_.extract(actor);
    return node.empty() ? std::set<Who>() : std::move(node.mapped());
  }
  /// Forgets a follower that has ended.
  void remove(Who who) {
    for (auto& [actor, all] : of_) all.erase(who);
  }

 private:
  std::map<ActorId, std::set<Who>> of_;
};

}  // namespace troupe
