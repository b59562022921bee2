#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/node/resources.hpp"

namespace troupe {

/// The reservations of each node. Not synchronised.
class PlacementTable {
 public:
  explicit PlacementTable(std::vector<NodeSpec> nodes);

  /// One actor's reservation; return it with `release`.
  struct Reservation {
    std::size_t node = 0;  ///< index in the constructor's order
    int cpus = 0;
    std::vector<int> devices;
  };

  /// Reserves `asked` on the node named `node`, or, if that is empty, on a living node chosen by
  /// `policy`. Errors: not_found for an unknown node; peer_died for a lost one; resource_exhausted
  /// says what was asked for and what each candidate has left.
  Result<Reservation> place(const Resources& asked, const std::string& node, Placement policy);
  void release(const Reservation& reservation);
  /// The node has another name from now on, and is there, even if it was removed.
  void name_node(std::size_t node, const std::string& name);
  /// The node gets no more actors.
  void remove_node(std::size_t node);

 private:
  struct Node {
    NodeSpec spec;
    int free_cpus = 0;
    std::vector<int> free_devices;  ///< ascending
    std::size_t actors = 0;
    bool alive = true;

    bool has_room(const Resources& asked) const;
  };
  Reservation take(std::size_t index, const Resources& asked);
  std::string describe_room() const;

  std::vector<Node> nodes_;
};

}  // namespace troupe
