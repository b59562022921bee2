#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/worker/collective_log.hpp"

namespace troupe {

// Which rank does not arrive, when a step is not answered.

/// Returns the ranks that others wait for and that wait for nobody themselves: those that have
/// begun fewer calls than a rank which is inside one. If no rank waits for another one, those that
/// have not finished `step`, which is not answered, and if none is in it those that have not begun
/// it. Ascending.
std::vector<int> find_missing_ranks(std::span<const RankState> states, std::uint64_t step);

/// True if a rank has done nothing between two looks: no step and no call has begun or ended.
bool is_unchanged(const RankState& before, const RankState& after);

/// A line for each rank and group: its step and its latest call.
std::vector<std::string> describe(std::span<const RankState> states);

/// Returns what the others wait for: "rank 1 did not come to call 12 of the tensor ranks
/// (all_reduce of 4096 bytes), for which rank 0 has waited 10.2 s". Of one that nobody waits for:
/// "rank 0 did not finish step 7".
std::string describe_missing(std::span<const RankState> states, int rank, std::uint64_t step);

}  // namespace troupe
