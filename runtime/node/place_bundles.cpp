#include "runtime/node/place_bundles.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace troupe {
namespace {

using Assignment = std::optional<std::vector<std::size_t>>;

bool covers_all(Resources free, std::span<const Resources> bundles) {
  for (const Resources& bundle : bundles) {
    if (!free.covers(bundle)) return false;
    free -= bundle;
  }
  return true;
}

Assignment on_one_node(std::span<const Resources> bundles, std::span<const Resources> free) {
  for (std::size_t node = 0; node < free.size(); ++node) {
    if (covers_all(free[node], bundles)) return std::vector<std::size_t>(bundles.size(), node);
  }
  return std::nullopt;
}

/// Finds a node of its own for each bundle, as a matching of bundles and nodes.
class Matching {
 public:
  Matching(std::span<const Resources> bundles, std::span<const Resources> free)
      : bundles_(bundles), free_(free), bundle_of_(free.size(), none), tried_(free.size(), none) {}

  Assignment find() {
    if (bundles_.size() > free_.size()) return std::nullopt;
    for (std::size_t bundle = 0; bundle < bundles_.size(); ++bundle) {
      if (!place(bundle, bundle)) return std::nullopt;
    }
    std::vector<std::size_t> nodes(bundles_.size());
    for (std::size_t node = 0; node < free_.size(); ++node) {
      if (bundle_of_[node] != none) nodes[bundle_of_[node]] = node;
    }
    return nodes;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  /// Places a bundle, and moves others away if need be. `round` marks the nodes that were tried.
  bool place(std::size_t bundle, std::size_t round) {
    for (std::size_t node = 0; node < free_.size(); ++node) {
      if (bundle_of_[node] == none && free_[node].covers(bundles_[bundle])) {
        bundle_of_[node] = bundle;
        return true;
      }
    }
    for (std::size_t node = 0; node < free_.size(); ++node) {
      if (tried_[node] == round || !free_[node].covers(bundles_[bundle])) continue;
      tried_[node] = round;
      if (place(bundle_of_[node], round)) {
        bundle_of_[node] = bundle;
        return true;
      }
    }
    return false;
  }

  std::span<const Resources> bundles_, free_;
  std::vector<std::size_t> bundle_of_;  ///< by node
  std::vector<std::size_t> tried_;      ///< by node: the last round in which it was
};

Assignment greedily(std::span<const Resources> bundles, std::span<const Resources> free,
                    std::span<const std::size_t> order, bool spreads) {
  std::vector<Resources> left(free.begin(), free.end());
  std::vector<std::size_t> nodes(bundles.size()), count(free.size());
  for (const std::size_t bundle : order) {
    std::size_t best = left.size();
    for (std::size_t node = 0; node < left.size(); ++node) {
      if (best != left.size() && count[node] >= count[best]) continue;
      if (!left[node].covers(bundles[bundle])) continue;
      best = node;
      if (!spreads || count[node] == 0) break;
    }
    if (best == left.size()) return std::nullopt;
    left[best] -= bundles[bundle];
    ++count[best];
    nodes[bundle] = best;
  }
  return nodes;
}

/// For an order by size: devices are the scarcest.
auto size_of(const Resources& bundle) {
  std::int64_t custom = 0;
  for (const auto& [name, amount] : bundle.custom) custom = std::max(custom, amount);
  return std::tuple(bundle.devices, bundle.cpus, bundle.memory_bytes, custom);
}

Assignment greedily(std::span<const Resources> bundles, std::span<const Resources> free,
                    bool spreads) {
  std::vector<std::size_t> order(bundles.size());
  std::iota(order.begin(), order.end(), 0);
  if (auto nodes = greedily(bundles, free, order, spreads)) return nodes;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return size_of(bundles[a]) > size_of(bundles[b]);
  });
  return greedily(bundles, free, order, spreads);
}

}  // namespace

std::optional<std::vector<std::size_t>> place_bundles(std::span<const Resources> bundles,
                                                      std::span<const Resources> free,
                                                      PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::strict_pack:
      return on_one_node(bundles, free);
    case PlacementStrategy::strict_spread:
      return Matching(bundles, free).find();
    case PlacementStrategy::pack:
      if (auto nodes = on_one_node(bundles, free)) return nodes;
      return greedily(bundles, free, false);
    case PlacementStrategy::spread:
      if (auto nodes = Matching(bundles, free).find()) return nodes;
      return greedily(bundles, free, true);
  }
  return std::nullopt;
}

}  // namespace troupe
