#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe {

/// The order in which waiting requests are admitted; running ones are preempted in reverse order.
enum class SchedulingPolicy : std::uint8_t {
  fcfs,      ///< first come, first served
  priority,  ///< the lowest `priority` number first, as in vLLM
  sjf,       ///< the shortest job first: fewest tokens of prompt and answer together
  deadline,  ///< the one that must begin first to meet its deadline; then those without one
};

/// Returns the policy of that name in the YAML; nothing for an unknown one.
std::optional<SchedulingPolicy> scheduling_policy(std::string_view name);

/// The properties of a request that a policy may use.
struct SchedulingFacts {
  std::uint64_t arrival = 0;  ///< counts requests as they come
  std::int32_t priority = 0;
  std::int64_t tokens = 0;                  ///< of the prompt plus max_tokens
  std::optional<std::int64_t> deadline_us;  ///< on the caller's clock
  std::int64_t cost_us = 0;                 ///< the least time it takes if admitted now
};

/// A sequence's place in the order: lower goes first; of equal ranks the request that came first,
/// and within a request the lower number.
struct SchedulingRank {
  std::int64_t rank = 0;
  std::uint64_t arrival = 0;
  std::int32_t sequence = 0;  ///< number within the request

  auto operator<=>(const SchedulingRank&) const = default;
};

/// Before all others.
inline constexpr SchedulingRank first_rank{std::numeric_limits<std::int64_t>::min(), 0, 0};

/// The rank of a request. Under sjf a token weighs as much as one later arrival, so a request that
/// arrives that much later goes behind: long requests wait but do not starve. Priorities and
/// deadlines come from the caller and may starve others.
SchedulingRank rank_of(SchedulingPolicy policy, const SchedulingFacts& facts);

/// The rank of a sequence that can no longer meet its deadline: behind all that can.
SchedulingRank late_rank(SchedulingRank rank);
/// True if a request of this rank, under `deadline`, can no longer be in time.
bool is_too_late(const SchedulingRank& rank, std::int64_t now_us);

}  // namespace troupe
