#include "runtime/node/placement_table.hpp"

#include <algorithm>

#include "runtime/node/place_bundles.hpp"

namespace troupe {

PlacementTable::PlacementTable(std::vector<NodeSpec> nodes) {
  for (auto& spec : nodes) {
    ResourceRoom free = ResourceRoom::of(spec);
    const Stage stage = spec.joins_later ? Stage::awaited : Stage::open;
    nodes_.push_back({.spec = std::move(spec), .free = std::move(free), .stage = stage});
  }
}

std::optional<std::size_t> PlacementTable::node_named(const std::string& name) const {
  const auto found = std::ranges::find_if(
      nodes_, [&](const Node& node) { return node.is_there() && node.spec.name == name; });
  if (found == nodes_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - nodes_.begin());
}

Result<std::size_t> PlacementTable::find_node(const std::string& name) const {
  if (const auto named = node_named(name)) return *named;
  const auto gone =
      std::ranges::find_if(nodes_, [&](const Node& node) { return node.spec.name == name; });
  if (gone != nodes_.end()) return fail(ErrorCode::peer_died, "node {}", why_closed(*gone));
  return fail(ErrorCode::not_found, "no node is named '{}'; there is {}", name,
              of_nodes([](const Node& node) { return fmt::format("'{}'", node.spec.name); }));
}

Result<PlacementTable::Reservation> PlacementTable::place(const Resources& asked,
                                                          const std::string& node,
                                                          PlacementStrategy strategy) {
  TROUPE_CHECK(asked.check());
  if (const auto best = find_room(asked, node, strategy)) return take(*best, asked);
  if (!node.empty()) {
    TROUPE_TRY(const std::size_t named, find_node(node));
    return fail(code_of_lack(nodes_[named].spec.capacity().covers(asked)),
                "there is no room for {}: {}", asked.describe(), lack(nodes_[named], asked));
  }
  const bool fits = std::ranges::any_of(
      nodes_, [&](const Node& one) { return one.spec.capacity().covers(asked); });
  return fail(code_of_lack(fits), "there is no room for {}: {}", asked.describe(), lacks(asked));
}

std::optional<PlacementTable::Reservation> PlacementTable::try_place(const Resources& asked,
                                                                     const std::string& node,
                                                                     PlacementStrategy strategy) {
  if (!asked.check().ok()) return std::nullopt;
  const auto best = find_room(asked, node, strategy);
  if (!best) return std::nullopt;
  return take(*best, asked);
}

std::optional<std::size_t> PlacementTable::find_room(const Resources& asked,
                                                     const std::string& node,
                                                     PlacementStrategy strategy) const {
  if (!node.empty()) {
    const auto named = node_named(node);
    return named && nodes_[*named].has_room(asked) ? named : std::nullopt;
  }
  const bool spreads =
      strategy == PlacementStrategy::spread || strategy == PlacementStrategy::strict_spread;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_open_for(asked)) continue;
    if (!best || (spreads && nodes_[i].actors < nodes_[*best].actors)) best = i;
  }
  return best;
}

PlacementTable::Reservation PlacementTable::take(std::size_t node, const Resources& asked) {
  ++nodes_[node].actors;
  return {node, nodes_[node].free.take(asked), std::nullopt};
}

Result<std::size_t> PlacementTable::node_of(const BundleId& bundle) const {
  const auto found = groups_.find(bundle.group);
  if (found == groups_.end()) {
    return fail(ErrorCode::not_found, "there is no placement group {}, or it has been removed",
                bundle.group);
  }
  const Group& group = found->second;
  if (group.is_removed) {
    return fail(ErrorCode::not_found, "placement group '{}' has been removed", group.name);
  }
  if (bundle.index >= group.bundles.size()) {
    return fail(ErrorCode::invalid_argument,
                "placement group '{}' has {} bundles, numbered from 0: none is {}", group.name,
                group.bundles.size(), bundle.index);
  }
  const Bundle& one = group.bundles[bundle.index];
  if (one.state != BundleState::lost) return one.node;
  return fail(ErrorCode::peer_died, "bundle {} of placement group '{}' is lost with node '{}'",
              bundle.index, group.name, one.node_name);
}

Result<PlacementTable::Reservation> PlacementTable::place_in(const Resources& asked,
                                                             const BundleId& bundle) {
  TROUPE_CHECK(asked.check());
  TROUPE_TRY(const std::size_t node, node_of(bundle));
  Group& group = groups_.at(bundle.group);
  Bundle& one = group.bundles[bundle.index];
  if (!one.free.amounts.covers(asked)) {
    return fail(code_of_lack(one.whole.amounts.covers(asked)),
                "there is no room for {} in bundle {} of placement group '{}', which has {}; left "
                "there: {}",
                asked.describe(), bundle.index, group.name, one.whole.amounts.describe(),
                one.free.amounts.describe());
  }
  ++one.actors;
  ++nodes_[node].actors;
  return Reservation{node, one.free.take(asked), bundle};
}

Result<void> PlacementTable::check_schedulable(const Resources& asked,
                                               const std::string& name) const {
  TROUPE_CHECK(asked.check());
  const bool is_there = std::ranges::any_of(nodes_, [&](const Node& node) {
    if (!name.empty() && node.spec.name != name) return false;
    return node.is_there() && (!name.empty() || node.stage == Stage::open) &&
           node.spec.capacity().covers(asked);
  });
  if (is_there) return {};
  return fail(ErrorCode::unschedulable, "no node{} has {} in all: {}",
              name.empty() ? "" : fmt::format(" named '{}' is there that", name), asked.describe(),
              of_nodes([](const Node& node) {
                return node.is_there() ? fmt::format("'{}' has {}", node.spec.name,
                                                     node.spec.capacity().describe())
                                       : why_closed(node);
              }));
}

void PlacementTable::release(const Reservation& reservation) {
  Node& node = nodes_[reservation.node];
  --node.actors;
  if (!reservation.bundle) return node.free.put_back(reservation.held);
  const auto found = groups_.find(reservation.bundle->group);
  Bundle& bundle = found->second.bundles[reservation.bundle->index];
  (bundle.is_given_back ? node.free : bundle.free).put_back(reservation.held);
  --bundle.actors;
  if (!found->second.is_removed || bundle.actors != 0) return;
  retire(found->first, found->second, bundle);
  if (found->second.in_use == 0) groups_.erase(found);
}

std::optional<BundleId> PlacementTable::lose_bundle_of(Reservation& reservation) {
  if (!reservation.bundle || !moves(*reservation.bundle)) return std::nullopt;
  const BundleId id = *std::exchange(reservation.bundle, std::nullopt);
  Bundle& bundle = groups_.at(id.group).bundles[id.index];
  --bundle.actors;
  if (bundle.state != BundleState::held) return id;
  Node& node = nodes_[bundle.node];
  node.free.put_back(bundle.free);
  bundle.state = BundleState::lost;
  bundle.is_given_back = true;
  const auto count = node.bundles.find(id.group);
  if (--count->second == 0) node.bundles.erase(count);
  return id;
}

void PlacementTable::retire(PlacementGroupId id, Group& group, Bundle& bundle) {
  --group.in_use;
  if (bundle.state != BundleState::held) return;
  bundle.state = BundleState::returned;
  Node& node = nodes_[bundle.node];
  node.free.put_back(bundle.whole);
  const auto count = node.bundles.find(id);
  if (--count->second == 0) node.bundles.erase(count);
}

Result<void> PlacementTable::check(const PlacementGroupOptions& options) const {
  if (options.bundles.empty()) {
    return fail(ErrorCode::invalid_argument, "a placement group needs bundles");
  }
  const bool is_strict = options.strategy == PlacementStrategy::strict_pack ||
                         options.strategy == PlacementStrategy::strict_spread;
  if (options.moves && is_strict) {
    return fail(ErrorCode::invalid_argument,
                "a placement group that moves is placed by pack or spread, not by {}",
                name_of(options.strategy));
  }
  for (std::size_t i = 0; i < options.bundles.size(); ++i) {
    if (auto checked = options.bundles[i].check(); !checked.ok()) {
      return fail(ErrorCode::invalid_argument, "bundle {}: {}", i, checked.error().message);
    }
    if (options.bundles[i].is_nothing()) {
      return fail(ErrorCode::invalid_argument, "bundle {} asks for nothing", i);
    }
  }
  if (group_names_.contains(options.name)) {
    return fail(ErrorCode::already_exists, "there is a placement group named '{}' already",
                options.name);
  }
  return {};
}

Result<PlacementGroup> PlacementTable::create_group(const PlacementGroupOptions& options) {
  TROUPE_CHECK(check(options));
  const auto placed = find_places(options.bundles, options.strategy);
  if (!placed) return refusal(options);

  const PlacementGroupId id = next_group_++;
  Group group{.name = options.name,
              .strategy = options.strategy,
              .moves = options.moves,
              .in_use = placed->size()};
  if (group.name.empty()) group.name = fmt::format("placement-group-{}", id);
  for (std::size_t i = 0; i < placed->size(); ++i) {
    Node& node = nodes_[(*placed)[i]];
    ResourceRoom whole = node.free.take(options.bundles[i]);
    ++node.bundles[id];
    group.bundles.push_back({.node = (*placed)[i],
                             .node_name = node.spec.name,
                             .whole = whole,
                             .free = std::move(whole)});
  }
  if (!options.name.empty()) group_names_.emplace(group.name, id);
  return describe(id, groups_.emplace(id, std::move(group)).first->second);
}

std::optional<std::vector<std::size_t>> PlacementTable::find_places(
    const std::vector<Resources>& bundles, PlacementStrategy strategy) const {
  auto places = find_places(bundles, strategy, false);
  return places ? places : find_places(bundles, strategy, true);
}

bool PlacementTable::could_hold(const PlacementGroupOptions& options) const {
  std::vector<Resources> whole;
  for (const Node& node : nodes_) whole.push_back(node.spec.capacity());
  return place_bundles(options.bundles, whole, options.strategy).has_value();
}

std::optional<std::vector<std::size_t>> PlacementTable::find_places(
    const std::vector<Resources>& bundles, PlacementStrategy strategy, bool with_spares) const {
  std::vector<std::size_t> living;
  std::vector<Resources> free;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].stage != Stage::open) continue;
    if (nodes_[i].spec.is_spare && !with_spares) continue;
    living.push_back(i);
    free.push_back(nodes_[i].free.amounts);
  }
  const auto placed = place_bundles(bundles, free, strategy);
  if (!placed) return std::nullopt;
  std::vector<std::size_t> places;
  for (const auto place : *placed) places.push_back(living[place]);
  return places;
}

Result<PlacementGroup> PlacementTable::place_again(PlacementGroupId id) {
  if (!moves({id, 0})) {
    return fail(ErrorCode::not_found, "there is no placement group {} that moves", id);
  }
  Group& group = groups_.at(id);
  std::vector<Bundle*> lost;
  PlacementGroupOptions asked{.name = group.name, .strategy = group.strategy};
  for (Bundle& bundle : group.bundles) {
    if (bundle.state != BundleState::lost) continue;
    lost.push_back(&bundle);
    asked.bundles.push_back(bundle.whole.amounts);
    if (bundle.actors == 0) continue;
    return fail(ErrorCode::resource_exhausted, "actors that were on '{}' have not been released",
                bundle.node_name);
  }
  if (lost.empty()) return describe(id, group);
  const auto placed = find_places(asked.bundles, asked.strategy);
  if (!placed) return refusal(asked);
  for (std::size_t i = 0; i < lost.size(); ++i) {
    Node& node = nodes_[(*placed)[i]];
    ++node.bundles[id];
    ResourceRoom whole = node.free.take(asked.bundles[i]);
    *lost[i] = {.node = (*placed)[i],
                .node_name = node.spec.name,
                .whole = whole,
                .free = std::move(whole)};
  }
  return describe(id, group);
}

std::set<std::uint32_t> PlacementTable::lost_bundles(PlacementGroupId id) const {
  std::set<std::uint32_t> lost;
  const auto found = groups_.find(id);
  if (found == groups_.end()) return lost;
  for (std::uint32_t i = 0; i < found->second.bundles.size(); ++i) {
    if (found->second.bundles[i].state == BundleState::lost) lost.insert(i);
  }
  return lost;
}

bool PlacementTable::moves(const BundleId& bundle) const {
  const auto found = groups_.find(bundle.group);
  return found != groups_.end() && found->second.moves && !found->second.is_removed;
}

Result<void> PlacementTable::remove_group(PlacementGroupId id) {
  const auto found = groups_.find(id);
  if (found == groups_.end() || found->second.is_removed) {
    return fail(ErrorCode::not_found, "there is no placement group {}, or it has been removed", id);
  }
  Group& group = found->second;
  const auto named = group_names_.find(group.name);
  if (named != group_names_.end() && named->second == id) group_names_.erase(named);
  group.is_removed = true;
  for (Bundle& bundle : group.bundles) {
    if (bundle.actors == 0) retire(id, group, bundle);
  }
  if (group.in_use == 0) groups_.erase(found);
  return {};
}

PlacementGroup PlacementTable::describe(PlacementGroupId id, const Group& group) {
  PlacementGroup described{id, group.name, group.strategy, {}};
  for (const Bundle& bundle : group.bundles) {
    described.bundles.push_back({bundle.whole.amounts, bundle.node_name, bundle.whole.devices,
                                 bundle.state == BundleState::lost});
  }
  return described;
}

std::vector<PlacementGroup> PlacementTable::groups() const {
  std::vector<PlacementGroup> described;
  for (const auto& [id, group] : groups_) {
    if (!group.is_removed) described.push_back(describe(id, group));
  }
  return described;
}

PlacementTable::Page PlacementTable::groups_after(PlacementGroupId after,
                                                  std::size_t bundles) const {
  Page page;
  std::size_t told = 0;
  for (auto next = groups_.upper_bound(after); next != groups_.end(); ++next) {
    const auto& [id, group] = *next;
    if (group.is_removed) continue;
    told += group.bundles.size();
    if (told > bundles && !page.groups.empty()) {
      page.is_last = false;
      break;
    }
    page.groups.push_back(describe(id, group));
  }
  return page;
}

std::size_t PlacementTable::group_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(groups_, [](const auto& group) { return !group.second.is_removed; }));
}

std::vector<PlacementTable::BundleRoom> PlacementTable::room_in(PlacementGroupId id) const {
  std::vector<BundleRoom> rooms;
  const auto found = groups_.find(id);
  if (found == groups_.end()) return rooms;
  for (const Bundle& bundle : found->second.bundles) {
    rooms.push_back({bundle.free.amounts, bundle.actors});
  }
  return rooms;
}

Resources PlacementTable::free_on(std::size_t node) const {
  return nodes_[node].is_there() ? nodes_[node].free.amounts : Resources{};
}

void PlacementTable::name_node(std::size_t node, const std::string& name, bool on_trial) {
  nodes_[node].spec.name = name;
  nodes_[node].stage = on_trial ? Stage::on_trial : Stage::open;
}

void PlacementTable::admit_node(std::size_t node) {
  if (nodes_[node].stage == Stage::on_trial) nodes_[node].stage = Stage::open;
}

void PlacementTable::close_node(std::size_t node) {
  if (nodes_[node].is_there()) nodes_[node].stage = Stage::closed;
}

void PlacementTable::remove_node(std::size_t index) {
  Node& node = nodes_[index];
  const bool was_let_go = node.stage == Stage::closed || node.stage == Stage::drained;
  node.stage = was_let_go ? Stage::drained : Stage::lost;
  for (const auto& [id, count] : std::exchange(node.bundles, {})) {
    for (Bundle& bundle : groups_.at(id).bundles) {
      if (bundle.node != index || bundle.state != BundleState::held) continue;
      bundle.state = BundleState::lost;
      node.free.put_back(bundle.whole);  // for an agent that takes the place of the lost one
    }
  }
}

}  // namespace troupe
