#include "runtime/node/placement_table.hpp"

#include <algorithm>

namespace troupe {

PlacementTable::PlacementTable(std::vector<NodeSpec> nodes) {
  for (auto& spec : nodes) {
    Node node;
    node.free_cpus = spec.cpus;
    node.free_devices = spec.devices;
    std::sort(node.free_devices.begin(), node.free_devices.end());
    node.spec = std::move(spec);
    nodes_.push_back(std::move(node));
  }
}

bool PlacementTable::Node::has_room(const Resources& asked) const {
  return alive && asked.cpus <= free_cpus && asked.devices <= static_cast<int>(free_devices.size());
}

Result<PlacementTable::Reservation> PlacementTable::place(const Resources& asked,
                                                          const std::string& node,
                                                          Placement policy) {
  if (asked.cpus < 0 || asked.devices < 0) {
    return fail(ErrorCode::invalid_argument, "resources cannot be negative: {} cpus, {} devices",
                asked.cpus, asked.devices);
  }
  if (!node.empty()) {
    auto found = std::ranges::find_if(nodes_, [&](const Node& candidate) {
      return candidate.alive && candidate.spec.name == node;
    });
    if (found == nodes_.end()) {
      found = std::ranges::find_if(
          nodes_, [&](const Node& candidate) { return candidate.spec.name == node; });
    }
    if (found == nodes_.end()) {
      return fail(ErrorCode::not_found, "no node is named '{}'; there is {}", node,
                  describe_room());
    }
    if (!found->alive) return fail(ErrorCode::peer_died, "node '{}' is lost", node);
    if (!found->has_room(asked)) {
      return fail(ErrorCode::resource_exhausted,
                  "{} cpus and {} devices do not fit on node '{}'; free there: {} of {} cpus, {} "
                  "of {} devices",
                  asked.cpus, asked.devices, node, found->free_cpus, found->spec.cpus,
                  found->free_devices.size(), found->spec.devices.size());
    }
    return take(static_cast<std::size_t>(found - nodes_.begin()), asked);
  }
  std::size_t best = nodes_.size();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].has_room(asked)) continue;
    if (best == nodes_.size() ||
        (policy == Placement::spread && nodes_[i].actors < nodes_[best].actors))
      best = i;
  }
  if (best == nodes_.size()) {
    return fail(ErrorCode::resource_exhausted, "{} cpus and {} devices fit on no node; free: {}",
                asked.cpus, asked.devices, describe_room());
  }
  return take(best, asked);
}

PlacementTable::Reservation PlacementTable::take(std::size_t index, const Resources& asked) {
  Node& node = nodes_[index];
  Reservation reservation{index, asked.cpus, {}};
  const auto end = node.free_devices.begin() + asked.devices;
  reservation.devices.assign(node.free_devices.begin(), end);
  node.free_devices.erase(node.free_devices.begin(), end);
  node.free_cpus -= asked.cpus;
  ++node.actors;
  return reservation;
}

void PlacementTable::release(const Reservation& reservation) {
  Node& node = nodes_[reservation.node];
  node.free_cpus += reservation.cpus;
  node.free_devices.insert(node.free_devices.end(), reservation.devices.begin(),
                           reservation.devices.end());
  std::sort(node.free_devices.begin(), node.free_devices.end());
  --node.actors;
}

void PlacementTable::name_node(std::size_t node, const std::string& name) {
  nodes_[node].spec.name = name;
  nodes_[node].alive = true;
}

void PlacementTable::remove_node(std::size_t node) { nodes_[node].alive = false; }

std::string PlacementTable::describe_room() const {
  std::string text;
  for (const auto& node : nodes_) {
    if (!text.empty()) text += "; ";
    text += node.alive ? fmt::format("'{}' with {} of {} cpus, {} of {} devices", node.spec.name,
                                     node.free_cpus, node.spec.cpus, node.free_devices.size(),
                                     node.spec.devices.size())
                       : fmt::format("'{}' (lost)", node.spec.name);
  }
  return text.empty() ? "no node" : text;
}

}  // namespace troupe
