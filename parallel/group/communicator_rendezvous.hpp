#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/group/communicator_spec.hpp"
#include "parallel/group/group_seat.hpp"
#include "runtime/actor/actor_context.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The start of the names of all shared memory of a group in its present epoch.
std::string region_prefix(const GroupSeat& seat);

/// One member's way into a communicator: shared memory between the members of a node, TLS links
/// with a key of the communicator's own across nodes, both in levels where there are several of
/// both. In two phases, because addresses must be exchanged between them. One thread.
class CommunicatorRendezvous {
 public:
  /// Attaches to shared memory, or listens. `places`: of all members of the group. Errors:
  /// invalid_argument if the seat's rank is not one of the communicator's; those of
  /// ShmCollectives::attach and NetworkRendezvous::announce.
  static Result<CommunicatorRendezvous> open(ActorContext& context, const GroupSeat& seat,
                                             CommunicatorSpec spec,
                                             std::span<const MemberPlace> places);

  const CommunicatorSpec& spec() const { return spec_; }
  CommunicatorListener listener() const;
  /// Completes the communicator with the addresses of its members' listeners, in its order. Once.
  /// Errors: those of NetworkRendezvous::connect.
  Result<std::unique_ptr<Collectives>> connect(std::span<const std::string> addresses,
                                               std::chrono::milliseconds timeout);
  /// Ends connect() here, also one that has not begun. Any thread.
  void abort() {
    if (links_) links_->abort();
  }

 private:
  explicit CommunicatorRendezvous(CommunicatorSpec spec) : spec_(std::move(spec)) {}
  /// Joins the members on this node, whose ranks in the communicator these are, in shared memory.
  Result<void> attach(ActorContext& context, const std::string& name, std::span<const int> here,
                      int own);

  CommunicatorSpec spec_;
  std::vector<int> node_of_;  ///< of each rank, numbered from 0
  std::unique_ptr<Collectives>
      on_node_;  ///< null if no other member is here, or memory is not shared
  std::optional<NetworkRendezvous> links_;
};

}  // namespace troupe
