#include "parallel/pipeline/stage_balance.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace troupe {

namespace {

/// Fills one stage after the other up to `most`, leaving a layer for each later stage. The last
/// stage takes the remainder, which fits only if `most` is enough.
std::vector<Slice> fill_stages(std::span<const std::int64_t> costs, int stages, std::int64_t most) {
  const auto layers = static_cast<std::int64_t>(costs.size());
  std::vector<Slice> filled;
  std::int64_t next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t latest_end = layers - (stages - 1 - stage);
    Slice slice{next, 1};
    std::int64_t cost = costs[static_cast<std::size_t>(next)];
    while (slice.end() < latest_end &&
           costs[static_cast<std::size_t>(slice.end())] <= most - cost) {
      cost += costs[static_cast<std::size_t>(slice.end())];
      ++slice.count;
    }
    filled.push_back(slice);
    next = slice.end();
  }
  return filled;
}

bool is_enough(std::span<const std::int64_t> costs, int stages, std::int64_t most) {
  return fill_stages(costs, stages, most).back().end() == static_cast<std::int64_t>(costs.size());
}

}  // namespace

std::vector<Slice> balance_stages(std::span<const std::int64_t> layer_costs, int stages) {
  assert(stages >= 1 && static_cast<std::size_t>(stages) <= layer_costs.size());
  std::int64_t least = *std::ranges::max_element(layer_costs);
  std::int64_t most = std::accumulate(layer_costs.begin(), layer_costs.end(), std::int64_t{0});
  while (least < most) {
    const std::int64_t middle = least + (most - least) / 2;
    if (is_enough(layer_costs, stages, middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return fill_stages(layer_costs, stages, most);
}

}  // namespace troupe
