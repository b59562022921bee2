#include "launcher/job/mesh_table.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "runtime/base/format_bytes.hpp"

namespace troupe {
namespace {

constexpr const char* row_format =
    "{:<5} {:<{}} {:<7} {:<4} {:<5} {:<6}  {:<7} {:<12} {:>8}  {:>8}\n";

/// "0-7", "3", or "-" for none.
std::string range(const Slice& slice) {
  if (slice.count == 0) return "-";
  if (slice.count == 1) return fmt::format("{}", slice.begin);
  return fmt::format("{}-{}", slice.begin, slice.end() - 1);
}

std::string experts_of(const RankFootprint& rank) {
  std::string text = range(rank.experts);
  if (rank.expert_parts > 1) {
    text += fmt::format(" {}/{}", rank.expert_part + 1, rank.expert_parts);
  }
  return text;
}

/// The rank's place among those of its stage: "1", or "0/1" with the context rank first.
std::string place_in_stage(const Mesh& mesh, const MeshCoordinates& at) {
  return mesh.shape().context == 1 ? fmt::format("{}", at.tensor)
                                   : fmt::format("{}/{}", at.context, at.tensor);
}

const std::string only_node = "node0";

}  // namespace

std::string mesh_table(const Mesh& mesh, std::span<const RankFootprint> ranks,
                       std::int64_t kv_blocks, std::span<const std::string> nodes) {
  const auto blocks = static_cast<std::uint64_t>(kv_blocks);
  std::size_t width = 6;
  for (const std::string& node : nodes) width = std::max(width, node.size());
  std::map<std::string, int> devices_used;
  std::string text = fmt::format(fmt::runtime(row_format), "rank", "node", width, "device", "data",
                                 "stage", mesh.shape().context == 1 ? "tensor" : "ctx/tp", "layers",
                                 "experts", "weights", "KV");
  std::uint64_t weights = 0;
  std::uint64_t kv = 0;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const RankFootprint& held = ranks[static_cast<std::size_t>(rank)];
    const MeshCoordinates at = mesh.coordinates(rank);
    const std::uint64_t own_kv = held.kv_bytes_per_block * blocks;
    const std::string& node = nodes.empty() ? only_node : nodes[static_cast<std::size_t>(rank)];
    text += fmt::format(fmt::runtime(row_format), rank, node, width, devices_used[node]++, at.data,
                        at.stage, place_in_stage(mesh, at), range(held.layers), experts_of(held),
                        format_bytes(held.weight_bytes), format_bytes(own_kv));
    weights += held.weight_bytes;
    kv += own_kv;
  }
  text += fmt::format(fmt::runtime(row_format), "total", "", width, "", "", "", "", "", "",
                      format_bytes(weights), format_bytes(kv));
  return text;
}

}  // namespace troupe
