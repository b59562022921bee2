#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/group/communicator_rendezvous.hpp"
#include "parallel/group/communicator_spec.hpp"
#include "parallel/group/group_seat.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/actor/methods.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The base of actors that can be members of an ActorGroup:
///
///     class Trainer final : public GroupMember {
///      public:
///       explicit Trainer(ActorContext& context) : GroupMember(context) {}
///       Result<void> add(std::vector<float> gradients);  // collectives()->all_reduce_tree(...)
///       using Methods = GroupMember::Methods::plus<&Trainer::add>;
///     };
///
/// When a member is lost, the collectives of all others are aborted at once: calls that wait in
/// them return `cancelled` (or peer_died), and so do later ones, until the group has formed anew.
/// Nothing else of the actor changes. Each member watches all others.
///
/// Threads: the actor's, except abort_group(), and calls on the Collectives as those allow.
class GroupMember {
 public:
  explicit GroupMember(ActorContext& context) : context_(context) {}
  virtual ~GroupMember();
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  // ActorGroup::form calls these on all members, each once every member has done the one before.

  /// Leaves the group's former epoch and takes a seat in the new one.
  MemberPlace meet(GroupSeat seat);
  /// Watches the others and opens its communicators. Errors: cancelled if this incarnation of the
  /// actor has not met in that epoch; invalid_argument if two communicators share a name; those of
  /// communicators() and CommunicatorRendezvous::open.
  Result<std::vector<CommunicatorListener>> listen(const GroupEpoch& of,
                                                   const std::vector<MemberPlace>& places);
  /// All members watch each other now. Errors: cancelled if this one was started anew before they
  /// did, so that none of them waits for it in connect().
  Result<void> confirm(const GroupEpoch& of);
  /// Completes the communicators, in the order in which listen() named them. Errors: cancelled as
  /// listen(), and if another member has been lost since; those of CommunicatorRendezvous::connect.
  Result<void> connect(const GroupEpoch& of,
                       const std::vector<std::vector<std::string>>& addresses);

  using Methods = troupe::Methods<&GroupMember::meet, &GroupMember::listen, &GroupMember::confirm,
                                  &GroupMember::connect>;

 protected:
  /// The communicators of this member in the group that forms: here one, of all members. Members
  /// take part in those that name them, in the same order if they share several.
  virtual Result<std::vector<CommunicatorSpec>> communicators();
  /// Called by meet() while the member still has its former seat: must end what uses the
  /// communicators.
  virtual void before_leaving() {}

  /// The member's place; its epoch is 0 until it is asked into a group.
  const GroupSeat& seat() const { return seat_; }
  /// A communicator of the present epoch. Null if there is none of that name, or it has not formed.
  std::shared_ptr<Collectives> collectives(std::string_view name = whole_group) const;
  /// Aborts all communicators, here and on their other members. Any thread.
  void abort_group();

 private:
  void leave();
  Result<void> check_met(const GroupEpoch& of) const;
  /// Aborts the group when another member is lost.
  void watch_others(const std::vector<MemberPlace>& places);
  Result<void> connect_all(const std::vector<std::vector<std::string>>& addresses);

  ActorContext& context_;
  GroupSeat seat_;
  mutable std::mutex mutex_;                      ///< of the next three
  std::vector<CommunicatorRendezvous> meetings_;  ///< from listen() to the end of connect()
  std::map<std::string, std::shared_ptr<Collectives>, std::less<>> communicators_;
  bool is_aborted_ = false;          ///< in this epoch
  std::vector<WatchToken> watches_;  ///< end first: their callbacks use the rest
};

}  // namespace troupe
