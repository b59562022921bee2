#include "actors/driver/missing_ranks.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace troupe {
namespace {

const RankState* state_of(std::span<const RankState> states, int rank) {
  const auto found = std::ranges::find(states, rank, &RankState::rank);
  return found == states.end() ? nullptr : &*found;
}

const CollectiveState* same_group(const RankState& of, const CollectiveState& group) {
  const auto found = std::ranges::find_if(of.groups, [&](const CollectiveState& other) {
    return other.group == group.group && other.ranks == group.ranks;
  });
  return found == of.groups.end() ? nullptr : &*found;
}

std::size_t place_in(const CollectiveState& group, int rank) {
  return static_cast<std::size_t>(std::ranges::find(group.ranks, rank) - group.ranks.begin());
}

/// True if `waiting`, which is inside a call of this group, waits for `other`.
bool waits_for(const RankState& waiting, const CollectiveState& group, const RankState& other) {
  const CollectiveState* there = same_group(other, group);
  if (!group.is_inside || there == nullptr || other.rank == waiting.rank) return false;
  if (group.peer < 0) return there->calls < group.calls;
  const auto peer = static_cast<std::size_t>(group.peer);
  if (group.ranks[peer] != other.rank) return false;
  const std::size_t own = place_in(group, waiting.rank);
  if (group.op == "receive") return there->sends[own] < group.receives[peer];
  return there->receives[own] < group.sends[peer];
}

bool waits(const RankState& rank, std::span<const RankState> states) {
  return std::ranges::any_of(rank.groups, [&](const CollectiveState& group) {
    return std::ranges::any_of(
        states, [&](const RankState& other) { return waits_for(rank, group, other); });
  });
}

double seconds(const CollectiveState& call) { return static_cast<double>(call.since_us) * 1e-6; }

/// "all_reduce of 4096 bytes", "receive of 512 bytes from rank 0".
std::string describe_call(const CollectiveState& call) {
  std::string text = fmt::format("{} of {} bytes", call.op, call.bytes);
  if (call.peer < 0) return text;
  return text + fmt::format(" {} rank {}", call.op == "send" ? "to" : "from",
                            call.ranks[static_cast<std::size_t>(call.peer)]);
}

std::uint64_t number_of(const CollectiveState& call) {
  if (call.peer < 0) return call.calls;
  const auto peer = static_cast<std::size_t>(call.peer);
  return call.op == "send" ? call.sends[peer] : call.receives[peer];
}

}  // namespace

std::vector<int> find_missing_ranks(std::span<const RankState> states, std::uint64_t step) {
  std::set<int> missing;
  bool any_waits = false;
  for (const RankState& rank : states) {
    for (const CollectiveState& group : rank.groups) {
      for (const RankState& other : states) {
        if (!waits_for(rank, group, other)) continue;
        any_waits = true;
        if (!waits(other, states)) missing.insert(other.rank);
      }
    }
  }
  if (any_waits) return {missing.begin(), missing.end()};
  // A rank that has not begun the step may wait for a message of one that is in it.
  const bool some_are_in_it = std::ranges::any_of(
      states, [&](const RankState& rank) { return rank.is_in_step && rank.step <= step; });
  for (const RankState& rank : states) {
    if (rank.is_in_step || (rank.step < step && !some_are_in_it)) missing.insert(rank.rank);
  }
  return {missing.begin(), missing.end()};
}

bool is_unchanged(const RankState& before, const RankState& after) {
  return before.incarnation == after.incarnation && before.step == after.step &&
         before.is_in_step == after.is_in_step &&
         std::ranges::equal(before.groups, after.groups,
                            [](const CollectiveState& a, const CollectiveState& b) {
                              return a.calls == b.calls && a.sends == b.sends &&
                                     a.receives == b.receives && a.is_inside == b.is_inside;
                            });
}

std::vector<std::string> describe(std::span<const RankState> states) {
  std::vector<std::string> lines;
  for (const RankState& rank : states) {
    const std::string who = fmt::format("rank {}: step {}{}", rank.rank, rank.step,
                                        rank.is_in_step ? "" : ", which is done");
    bool has_called = false;
    for (const CollectiveState& group : rank.groups) {
      if (group.op.empty()) continue;
      has_called = true;
      lines.push_back(fmt::format(
          "{}; {} ranks: {} number {}, {} {:.1f} s", who, group.group, describe_call(group),
          number_of(group), group.is_inside ? "waiting for" : "returned before", seconds(group)));
    }
    if (!has_called) lines.push_back(who + "; no calls to other ranks");
  }
  return lines;
}

std::string describe_missing(std::span<const RankState> states, int rank, std::uint64_t step) {
  const RankState* missing = state_of(states, rank);
  if (missing == nullptr) return fmt::format("rank {} does not say what it does", rank);
  for (const RankState& waiting : states) {
    for (const CollectiveState& group : waiting.groups) {
      if (!waits_for(waiting, group, *missing)) continue;
      return fmt::format(
          "rank {} did not come to call {} of the {} ranks ({}), for which rank {} "
          "has waited {:.1f} s",
          rank, number_of(group), group.group, describe_call(group), waiting.rank, seconds(group));
    }
  }
  if (!missing->is_in_step) return fmt::format("rank {} did not begin step {}", rank, step);
  return fmt::format("rank {} did not finish step {}", rank, missing->step);
}

}  // namespace troupe
