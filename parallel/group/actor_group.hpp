#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/group/group_member.hpp"
#include "parallel/group/group_seat.hpp"
#include "runtime/actor/actor_handle.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// True of the errors that the loss of a member causes in calls of the others: those of forming a
/// group, which the next epoch may have again, and of collectives.
bool is_loss(const Error& error);

/// Actors with ranks that compute together by Collectives. Whoever has their handles forms the
/// group: the driver, or an actor. It may be anywhere; the members exchange nothing with it but one
/// rendezvous for each epoch.
///
/// When a member is lost, the others' collectives end at once (GroupMember), and form() makes a new
/// epoch of the group. A member that was spawned with max_restarts takes its rank again; the others
/// keep what they hold. Members that are not restarted can be replaced (`replace`).
///
/// Threads: one at a time.
class ActorGroup {
 public:
  /// `members` in order of rank, each once. `name` is for messages; groups may share one.
  ActorGroup(const std::string& name, std::vector<ActorHandle<GroupMember>> members);

  /// Forms the group under the next epoch, and waits until all members have joined it: for members
  /// that are being started, too. If one is lost meanwhile, it begins again: `tries` times in
  /// all.
  /// Calls to members that are made later find the group formed. Errors name the member: those of
  /// GroupMember, timeout.
  Result<void> form(std::chrono::milliseconds timeout = std::chrono::seconds(30), int tries = 5);

  /// Gives the rank to another actor, from the next form() on.
  void replace(int rank, ActorHandle<GroupMember> member);

  /// The number of times that form() has begun; the present epoch if it has succeeded.
  std::uint32_t epoch() const { return epoch_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<ActorHandle<GroupMember>>& members() const { return members_; }

 private:
  Result<void> form_epoch(Deadline& deadline);
  std::vector<std::string> names() const;

  std::string id_;  ///< the name and a random part; empty: it could not be drawn
  std::vector<ActorHandle<GroupMember>> members_;
  std::uint32_t epoch_ = 0;
};

}  // namespace troupe
