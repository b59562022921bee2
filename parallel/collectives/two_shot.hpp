#pragma once

#include <cstddef>
#include <vector>

namespace troupe {

/// Above this many bytes an all-reduce of more than two ranks (over nodes: of more than two nodes)
/// takes two steps: each rank sums a share of the elements, then all gather the shares. Below, all
/// ranks sum everything, which waits only once.
inline constexpr std::size_t two_shot_above_bytes = 32u << 10;

/// The elements that each of `ranks` takes of `count`: their ceil_slice.
std::vector<std::size_t> equal_shares(std::size_t count, std::size_t ranks);

}  // namespace troupe
