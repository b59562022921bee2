#include "actors/preflight/node_probe.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "runtime/call/get_by.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// For all first calls together, which connect.
constexpr milliseconds reach_limit{6000};
/// After so long an address that refuses or has no route is not tried again. The route to a host
/// whose link has just come back is found with the second or third packet.
constexpr milliseconds again_limit{1500};
constexpr milliseconds again_pause{200};
/// For all measurements of a node together.
constexpr milliseconds measure_limit{4000};
/// A link that takes longer for `small_bytes` lets none of them through.
constexpr milliseconds swallowed_after{3000};
constexpr int pings = 5;
constexpr int transfers = 3;  ///< the fastest counts
constexpr std::size_t small_bytes = 64 << 10;
constexpr std::size_t large_bytes = 1 << 20;
/// A link that takes longer for `small_bytes` is slow enough to be measured by them.
constexpr double slow_seconds = 0.005;

/// The seconds of one call with so many bytes.
Result<double> time_call(const ActorHandle<ProbeTarget>& target, std::size_t bytes,
                         Deadline& deadline) {
  const Bytes argument(bytes);
  const auto begin = Clock::now();
  auto answer = target.call<&ProbeTarget::take>(argument);
  const auto taken = get_by(answer, deadline);
  if (!taken.ok()) return taken.error();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Errors: timeout, with the rest not measured, if the deadline comes first; io if bytes that had
/// `swallowed_after` or longer did not arrive.
Result<void> measure_link(const ActorHandle<ProbeTarget>& target, Deadline& deadline,
                          LinkFacts& facts) {
  for (int i = 0; i < pings; ++i) {
    TROUPE_TRY(const double seconds, time_call(target, 0, deadline));
    facts.seconds = i == 0 ? seconds : std::min(facts.seconds, seconds);
  }
  const auto had = deadline.left();
  const auto small = time_call(target, small_bytes, deadline);
  if (!small.ok() && small.error().code == ErrorCode::timed_out && had >= swallowed_after) {
    return fail(
        ErrorCode::io,
        "small messages get through, {} KiB did not within {:.1f} s: look at the MTU of all "
        "interfaces on the way",
        small_bytes >> 10, std::chrono::duration<double>(had).count());
  }
  TROUPE_TRY(const double small_seconds, small);
  const std::size_t bytes = small_seconds < slow_seconds ? large_bytes : small_bytes;
  double best = 0;
  for (int i = 0; i < transfers; ++i) {
    TROUPE_TRY(const double seconds, time_call(target, bytes, deadline));
    best = i == 0 ? seconds : std::min(best, seconds);
    facts.bytes_per_second = static_cast<double>(bytes) / std::max(1e-9, best - facts.seconds / 2);
  }
  return {};
}

/// Calls those of the peers that are `wanted`, all at once; returns those that it did not reach.
std::vector<std::size_t> try_to_reach(const std::vector<ProbedPeer>& peers,
                                      const std::vector<std::size_t>& wanted, Deadline& deadline,
                                      std::vector<LinkFacts>& links) {
  std::vector<Future<std::uint64_t>> answers;
  for (const std::size_t i : wanted) {
    answers.push_back(peers[i].target.call<&ProbeTarget::take>(Bytes{}));
  }
  std::vector<std::size_t> missed;
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    const auto answer = get_by(answers[j], deadline);
    links[wanted[j]].problem = answer.ok() ? "" : answer.error().message;
    if (!answer.ok()) missed.push_back(wanted[j]);
  }
  return missed;
}

}  // namespace

std::int64_t ProbeTarget::clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<LinkFacts> NodeProbe::measure(const std::vector<ProbedPeer>& peers) {
  std::vector<LinkFacts> links(peers.size());
  Deadline again(again_limit), reach(reach_limit);
  std::vector<std::size_t> missed(peers.size());
  std::iota(missed.begin(), missed.end(), std::size_t{0});
  missed = try_to_reach(peers, missed, reach, links);
  while (!missed.empty() && !again.is_over() && !reach.is_over()) {
    std::this_thread::sleep_for(again_pause);
    missed = try_to_reach(peers, missed, reach, links);
  }
  Deadline measuring(measure_limit);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i].is_near || !links[i].problem.empty() || measuring.is_over()) continue;
    const auto measured = measure_link(peers[i].target, measuring, links[i]);
    if (!measured.ok() && measured.error().code != ErrorCode::timed_out) {
      links[i].problem = measured.error().message;
    }
  }
  return links;
}

void add_preflight_actors(ActorTypes& types) {
  types.add<ProbeTarget>();
  types.add<NodeProbe>();
}

}  // namespace troupe
