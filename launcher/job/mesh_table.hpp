#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/model/footprint.hpp"
#include "parallel/mesh/mesh.hpp"

namespace troupe {

/// Makes a table with a line for each rank: its node, its place in the mesh, and what it holds:
/// layers, experts ("0-7 1/2": the first half of each of them), bytes of weights and of `kv_blocks`
/// KV blocks; a last line has their sums. At most 80 columns if no node's name is longer than 6.
/// `ranks` has the world's footprints by rank, `nodes` the name of each rank's node, or nothing if
/// there is one.
std::string mesh_table(const Mesh& mesh, std::span<const RankFootprint> ranks,
                       std::int64_t kv_blocks, std::span<const std::string> nodes = {});

}  // namespace troupe
