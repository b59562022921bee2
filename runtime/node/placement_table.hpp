#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/node/placement_group.hpp"
#include "runtime/node/resource_room.hpp"
#include "runtime/node/resources.hpp"

namespace troupe {

/// The reservations of each node: those of actors, and placement groups with those of the actors in
/// them. Not synchronised.
class PlacementTable {
 public:
  explicit PlacementTable(std::vector<NodeSpec> nodes);

  /// One actor's reservation; return it with `release`.
  struct Reservation {
    std::size_t node = 0;  ///< index in the constructor's order
    ResourceRoom held;
    std::optional<BundleId> bundle;  ///< it is a part of this one's
  };

  /// Reserves `asked` on the node named `node`, or, if that is empty, on a living node chosen by
  /// `strategy`. Errors: not_found for an unknown node; peer_died for a lost one;
  /// resource_exhausted says what was asked for and what each candidate has left, and who holds the
  /// rest; unschedulable the same if it would not fit with nothing held and all nodes there.
  Result<Reservation> place(const Resources& asked, const std::string& node,
                            PlacementStrategy strategy);
  /// The same without a reason where there is none: for those who ask often, as reasons are long.
  std::optional<Reservation> try_place(const Resources& asked, const std::string& node,
                                       PlacementStrategy strategy);
  /// Reserves a part of a bundle. Errors: those of node_of; resource_exhausted says what is left,
  /// unschedulable if the whole bundle has not so much.
  Result<Reservation> place_in(const Resources& asked, const BundleId& bundle);
  void release(const Reservation& reservation);
  /// Ok if a node that is there, this one if it is named, has so much in all. Errors: unschedulable
  /// with what each node has; invalid_argument for a negative amount.
  Result<void> check_schedulable(const Resources& asked, const std::string& node) const;
  /// The reservation cannot be released soon, as a process that does not end uses what it holds. If
  /// it is a part of a bundle of a group that moves, the bundle is lost, and the reservation its
  /// node's own from now on. Returns the bundle; its other actors should end.
  std::optional<BundleId> lose_bundle_of(Reservation& reservation);

  /// Reserves all bundles or none. Errors: invalid_argument for no bundles, and for a bundle that
  /// asks for nothing or a negative amount; already_exists for a taken name; resource_exhausted
  /// says for each bundle what each node lacks, and so does unschedulable, as in place().
  Result<PlacementGroup> create_group(const PlacementGroupOptions& options);
  /// Places the lost bundles of a group that moves, all or none, by the group's strategy; does
  /// nothing if none is lost. Errors: not_found for a group that is not there, has been removed or
  /// does not move; resource_exhausted as in create_group, and while actors that ended with their
  /// node are not released.
  Result<PlacementGroup> place_again(PlacementGroupId id);
  /// True for a bundle of a group that is there and moves.
  bool moves(const BundleId& bundle) const;
  /// Indices of the bundles that are lost with their nodes; none for a group that is not there.
  std::set<std::uint32_t> lost_bundles(PlacementGroupId id) const;
  /// The group takes no more actors, and each of its bundles is free again once the last actor in
  /// it is released. not_found if there is no such group.
  Result<void> remove_group(PlacementGroupId id);
  /// The groups that have not been removed, in the order of their creation.
  std::vector<PlacementGroup> groups() const;
  struct Page {
    std::vector<PlacementGroup> groups;
    bool is_last = true;
  };
  /// The groups of groups() with a larger id than `after`, as many as have `bundles` in all, or one
  /// larger group.
  Page groups_after(PlacementGroupId after, std::size_t bundles) const;
  /// How many of these there are.
  std::size_t group_count() const;
  /// What is left of a bundle.
  struct BundleRoom {
    Resources free;
    std::size_t actors = 0;  ///< in it
  };
  /// The same of each bundle of a group of groups().
  std::vector<BundleRoom> room_in(PlacementGroupId id) const;
  /// What is neither held by actors nor by bundles; nothing on a node that is removed.
  Resources free_on(std::size_t node) const;
  /// Returns the index of the node of a bundle. Errors: not_found for a group that is not there or
  /// has been removed; invalid_argument for an index that it does not have; peer_died for a bundle
  /// that is lost.
  Result<std::size_t> node_of(const BundleId& bundle) const;

  /// The node has another name from now on, and is there, even if it was removed. `on_trial`: it
  /// takes only actors that name it, and no bundles, until it is admitted or removed.
  void name_node(std::size_t node, const std::string& name, bool on_trial = false);
  void admit_node(std::size_t node);
  /// It takes only actors that name it from now on, and no bundles; what it has stays. Removed
  /// then, it was drained.
  void close_node(std::size_t node);
  /// The node gets no more actors, and the bundles on it are lost.
  void remove_node(std::size_t node);

 private:
  /// The error where there is no room for what would fit if nothing was held, or would not.
  static ErrorCode code_of_lack(bool fits_when_free) {
    return fits_when_free ? ErrorCode::resource_exhausted : ErrorCode::unschedulable;
  }

  /// Nodes on trial and closed ones take only actors that name them.
  enum class Stage { awaited, on_trial, open, closed, lost, drained };
  struct Node {
    NodeSpec spec;
    ResourceRoom free;
    std::size_t actors = 0;
    Stage stage = Stage::open;
    std::map<PlacementGroupId, std::size_t> bundles{};  ///< how many each group has here

    bool is_there() const {
      return stage == Stage::on_trial || stage == Stage::open || stage == Stage::closed;
    }
    bool has_room(const Resources& asked) const { return is_there() && free.amounts.covers(asked); }
    /// The same for whom it is nothing special.
    bool is_open_for(const Resources& asked) const {
      return stage == Stage::open && has_room(asked);
    }
  };
  /// "'a' is lost"; empty for an open node.
  static std::string why_closed(const Node& node);
  enum class BundleState { held, lost, returned };
  struct Bundle {
    std::size_t node = 0;
    std::string node_name;
    ResourceRoom whole, free;
    std::size_t actors = 0;
    BundleState state = BundleState::held;
    bool is_given_back = false;  ///< lost, and its node is there: what it holds is the node's
  };
  struct Group {
    std::string name;
    PlacementStrategy strategy = PlacementStrategy::pack;
    bool moves = false;
    std::vector<Bundle> bundles{};
    bool is_removed = false;
    std::size_t in_use = 0;  ///< removed, it is forgotten once none of its bundles is
  };
  using Groups = std::map<PlacementGroupId, Group>;

  /// The node of this name, if it is there.
  std::optional<std::size_t> node_named(const std::string& name) const;
  /// The same, or the reason why there is none.
  Result<std::size_t> find_node(const std::string& name) const;
  /// The node for an actor: the named one, or without a name what the strategy chooses; none
  /// without room.
  std::optional<std::size_t> find_room(const Resources& asked, const std::string& node,
                                       PlacementStrategy strategy) const;
  Reservation take(std::size_t node, const Resources& asked);
  Result<void> check(const PlacementGroupOptions& options) const;
  /// Returns the node of each of these bundles, if there is room for all: on spare nodes only if
  /// there is none without.
  std::optional<std::vector<std::size_t>> find_places(const std::vector<Resources>& bundles,
                                                      PlacementStrategy strategy) const;
  std::optional<std::vector<std::size_t>> find_places(const std::vector<Resources>& bundles,
                                                      PlacementStrategy strategy,
                                                      bool with_spares) const;
  /// Whether there were places if nothing was held and all nodes were there.
  bool could_hold(const PlacementGroupOptions& options) const;
  static PlacementGroup describe(PlacementGroupId id, const Group& group);
  /// A bundle of a removed group has lost its last actor.
  void retire(PlacementGroupId id, Group& group, Bundle& bundle);

  /// Says why a group has no place.
  Error refusal(const PlacementGroupOptions& options) const;
  /// "'a' has 1 of 8 devices free (held by placement group 'x'), 'b' is lost".
  std::string lacks(const Resources& asked) const;
  std::string lack(const Node& node, const Resources& asked) const;
  /// " (held by placement group 'x' and actors)": who has what is not free of one resource.
  using AmountOf = std::function<std::int64_t(const Resources&)>;
  std::string holders(const Node& node, const AmountOf& amount_of) const;
  /// The texts of the first nodes, and how many there are beside them.
  std::string of_nodes(const std::function<std::string(const Node&)>& text) const;

  std::vector<Node> nodes_;
  Groups groups_;
  std::map<std::string, PlacementGroupId> group_names_;  ///< of those with a name of their own
  PlacementGroupId next_group_ = 1;
};

}  // namespace troupe
