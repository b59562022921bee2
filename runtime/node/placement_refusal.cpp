// The texts of the placement table's refusals. They name nodes and bundles, but not hundreds.
#include <algorithm>

#include <fmt/ranges.h>

#include "runtime/node/place_bundles.hpp"
#include "runtime/node/placement_table.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_nodes_named = 8, max_bundles_named = 4, max_groups_named = 3;

/// "a, b and 3 more NOUN"; `count` is how many there are of which `texts` are the first.
std::string list(const std::vector<std::string>& texts, std::size_t count, const char* separator,
                 const char* noun) {
  std::string text = fmt::format("{}", fmt::join(texts, separator));
  if (count > texts.size()) text += fmt::format(" and {} more {}", count - texts.size(), noun);
  return text;
}

const char* why_not_together(PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::strict_pack:
      return "no node has room for all of them";
    case PlacementStrategy::strict_spread:
      return "there is not a node for each of them";
    case PlacementStrategy::pack:
    case PlacementStrategy::spread:
      break;
  }
  return "not all of them together";
}

}  // namespace

std::string PlacementTable::of_nodes(const std::function<std::string(const Node&)>& text) const {
  std::vector<std::string> texts;
  for (const Node& node : nodes_) {
    if (texts.size() == max_nodes_named) break;
    texts.push_back(text(node));
  }
  return texts.empty() ? "no node" : list(texts, nodes_.size(), ", ", "nodes");
}

std::string PlacementTable::holders(const Node& node, const AmountOf& amount_of) const {
  std::int64_t by_actors = amount_of(node.spec.capacity()) - amount_of(node.free.amounts);
  std::vector<std::string> names;
  std::size_t holding_groups = 0;
  for (const auto& [id, count] : node.bundles) {
    const Group& group = groups_.at(id);
    std::int64_t held = 0;
    for (const Bundle& bundle : group.bundles) {
      const bool is_here = &nodes_[bundle.node] == &node && bundle.state == BundleState::held;
      if (is_here) held += amount_of(bundle.whole.amounts);
    }
    by_actors -= held;
    if (held == 0 || ++holding_groups > max_groups_named) continue;
    names.push_back(
        fmt::format("'{}'{}", group.name, group.is_removed ? " that is being removed" : ""));
  }
  std::string text;
  if (!names.empty()) {
    text = fmt::format("placement group{} {}", holding_groups == 1 ? "" : "s",
                       list(names, holding_groups, ", ", "groups"));
  }
  if (by_actors > 0) text += text.empty() ? "actors" : " and actors";
  return text.empty() ? "" : fmt::format(" (held by {})", text);
}

std::string PlacementTable::why_closed(const Node& node) {
  const char* why = "";
  switch (node.stage) {
    case Stage::open:
      return "";
    case Stage::awaited:
      why = "has not joined";
      break;
    case Stage::on_trial:
      why = "is being looked at";
      break;
    case Stage::closed:
      why = "is being drained";
      break;
    case Stage::lost:
      why = "is lost";
      break;
    case Stage::drained:
      why = "was drained";
      break;
  }
  return fmt::format("'{}' {}", node.spec.name, why);
}

std::string PlacementTable::lack(const Node& node, const Resources& asked) const {
  if (node.stage != Stage::open) return why_closed(node);
  std::vector<std::string> parts;
  const auto compare = [&](const AmountOf& amount_of, const std::string& what) {
    const std::int64_t free = amount_of(node.free.amounts);
    if (amount_of(asked) <= free) return;
    parts.push_back(fmt::format("{} of {} {} free{}", free, amount_of(node.spec.capacity()), what,
                                holders(node, amount_of)));
  };
  compare([](const Resources& of) { return of.devices; }, "devices");
  compare([](const Resources& of) { return of.cpus; }, "cpus");
  if (asked.memory_bytes > 0 && node.spec.memory_bytes == 0) {
    parts.emplace_back("memory that is not counted");
  } else {
    compare([](const Resources& of) { return of.memory_bytes; }, "bytes of memory");
  }
  for (const auto& [name, amount] : asked.custom) {
    compare(
        [&name](const Resources& of) {
          const auto found = of.custom.find(name);
          return found == of.custom.end() ? 0 : found->second;
        },
        fmt::format("'{}'", name));
  }
  return parts.empty() ? fmt::format("'{}' has room", node.spec.name)
                       : fmt::format("'{}' has {}", node.spec.name, fmt::join(parts, " and "));
}

std::string PlacementTable::lacks(const Resources& asked) const {
  return of_nodes([&](const Node& node) { return lack(node, asked); });
}

Error PlacementTable::refusal(const PlacementGroupOptions& options) const {
  std::vector<std::string> refused;
  std::size_t count = 0;
  for (std::size_t i = 0; i < options.bundles.size(); ++i) {
    const Resources& asked = options.bundles[i];
    if (std::ranges::any_of(nodes_, [&](const Node& node) { return node.is_open_for(asked); })) {
      continue;
    }
    if (++count > max_bundles_named) continue;
    refused.push_back(fmt::format("bundle {} ({}): {}", i, asked.describe(), lacks(asked)));
  }
  std::string why = list(refused, count, "; ", "bundles");
  if (count == 0) {
    why = fmt::format("each bundle has room by itself, but {}; free: {}",
                      why_not_together(options.strategy), of_nodes([](const Node& node) {
                        return node.stage == Stage::open ? fmt::format("'{}' {}", node.spec.name,
                                                                       node.free.amounts.describe())
                                                         : why_closed(node);
                      }));
  }
  return fail(code_of_lack(could_hold(options)), "there is no room for {} ({}, {} bundles): {}",
              options.name.empty() ? "a placement group"
                                   : fmt::format("placement group '{}'", options.name),
              name_of(options.strategy), options.bundles.size(), why);
}

}  // namespace troupe
