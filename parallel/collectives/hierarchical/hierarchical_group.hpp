#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/hierarchical/node_layout.hpp"
#include "parallel/collectives/network/network_collectives.hpp"
#include "parallel/collectives/scratch.hpp"

namespace troupe {

/// What the algorithms of HierarchicalCollectives work with.
struct HierarchicalGroup {
  NodeLayout layout;
  std::unique_ptr<Collectives> node;            ///< this node's ranks; null if there is one
  Scratch leaves, partial_sums, received;       ///< of sums
  Scratch outgoing, incoming;                   ///< of reduce-scatters with several subtrees a node
  Scratch sent_here, received_here;             ///< of all-to-all
  std::unique_ptr<NetworkCollectives> network;  ///< all ranks; ends first: it may abort `node`
};

/// Views for calls on a node's collectives, which only read what is sent.
inline Tensor view_of(std::span<const float> values) {
  return {
      const_cast<float*>(values.data()), DType::f32, {static_cast<std::int64_t>(values.size())}};
}
inline Tensor view_of(std::span<const std::byte> bytes) {
  return {
      const_cast<std::byte*>(bytes.data()), DType::u8, {static_cast<std::int64_t>(bytes.size())}};
}

/// Counts as the row counts of such views.
inline std::vector<std::int64_t> rows_of(std::span<const std::size_t> counts) {
  return {counts.begin(), counts.end()};
}

/// Where each of these consecutive parts begins.
inline std::vector<std::size_t> begins_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::size_t{0});
  return begins;
}

}  // namespace troupe
