#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe {

/// Which waiting request is admitted next, and which running one gives its blocks back last.
enum class SchedulingPolicy : std::uint8_t {
  fcfs,      ///< first come, first served
  priority,  ///< the lowest `priority` number first, as in vLLM
  sjf,       ///< the shortest job first: fewest tokens of prompt and answer together
  deadline,  ///< who must begin first to be done by its deadline; then those without one
};

/// By its name in the YAML; nothing for another.
std::optional<SchedulingPolicy> scheduling_policy(std::string_view name);

/// What a policy may know of a request.
struct SchedulingFacts {
  std::uint64_t arrival = 0;  ///< counts requests as they come
  std::int32_t priority = 0;
  std::int64_t tokens = 0;                  ///< of the prompt and at most of the answer
  std::optional<std::int64_t> deadline_us;  ///< on the caller's clock
  std::int64_t cost_us = 0;                 ///< what it takes at least, if it is given a place now
};

/// A place in the order of sequences: lower goes first; of equal rank that of the request which
/// came first, and of one request the lower number.
struct SchedulingRank {
  std::int64_t rank = 0;
  std::uint64_t arrival = 0;
  std::int32_t sequence = 0;  ///< its number in the request

  auto operator<=>(const SchedulingRank&) const = default;
};

/// Before all others.
inline constexpr SchedulingRank first_rank{std::numeric_limits<std::int64_t>::min(), 0, 0};

/// The rank of a request. Under sjf a token weighs as much as one later arrival: whoever comes that
/// much later goes behind, so that long requests wait but do not starve. Priorities and deadlines
/// are the caller's word and may starve others.
SchedulingRank rank_of(SchedulingPolicy policy, const SchedulingFacts& facts);

/// The rank of a sequence that can no longer meet its deadline: behind all that can.
SchedulingRank late_rank(SchedulingRank rank);
/// Whether a request of this rank, under `deadline`, can no longer be in time.
bool is_too_late(const SchedulingRank& rank, std::int64_t now_us);

}  // namespace troupe
