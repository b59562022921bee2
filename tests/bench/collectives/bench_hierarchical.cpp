// The collectives of a group over several nodes in two levels (HierarchicalCollectives) beside the
// same calls with every rank on the network (NetworkCollectives). Forked processes on this machine
// hold both groups and call them in turn; a node is the ranks that share memory. Medians of each
// call's time on rank 0; the ratio is network / hierarchical. Before each call of either group all
// meet over the network: a barrier in two levels would leave rank 0 ahead of the others.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "parallel/device/tensor.hpp"
#include "tests/process/collectives/forked_ranks.hpp"
#include "tests/process/collectives/seats.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<Result<void>(Collectives&)>;

constexpr std::size_t room_bytes = std::size_t{2} << 20;
constexpr int limit_seconds = 300;

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<long>(times.size() / 2));
  return times[times.size() / 2];
}

Result<double> time_us(Collectives& group, Collectives& before, const Call& call) {
  TROUPE_CHECK(before.barrier());
  const auto begin = Clock::now();
  TROUPE_CHECK(call(group));
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Both groups, and the medians of `call` in each.
struct Groups {
  std::unique_ptr<Collectives> hierarchical, network;

  Result<void> compare(const char* name, std::size_t bytes, const Call& call) const {
    const int rounds = static_cast<int>(std::clamp<std::size_t>((48u << 20) / bytes, 9, 301));
    std::vector<double> in_levels, flat;
    for (int i = 0; i < rounds + 2; ++i) {
      TROUPE_TRY(const double levels_us, time_us(*hierarchical, *network, call));
      TROUPE_TRY(const double flat_us, time_us(*network, *network, call));
      if (i < 2) continue;  // memory is touched for the first time
      in_levels.push_back(levels_us);
      flat.push_back(flat_us);
    }
    if (hierarchical->rank() != 0) return {};
    const double levels_us = median(in_levels), flat_us = median(flat);
    fmt::print("{:<12} {:>9} {:>14.0f} {:>12.0f} {:>7.2f}\n", name, bytes, levels_us, flat_us,
               flat_us / levels_us);
    std::fflush(stdout);
    return {};
  }
};

Result<void> bench_calls(const Groups& groups) {
  const int ranks = groups.network->size();
  for (std::size_t bytes = 4u << 10; bytes <= 16u << 20; bytes *= 16) {
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
    const HostTensor in(DType::f32, {elements}), out(DType::f32, {elements});
    const std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), elements / ranks);
    TROUPE_CHECK(groups.compare(
        "all-reduce", bytes, [&](Collectives& group) { return group.all_reduce_tree(in, out); }));
    TROUPE_CHECK(groups.compare("all-gather", bytes, [&](Collectives& group) {
      return group.all_gather(in->rows(0, rows[0]), out, rows);
    }));
    TROUPE_CHECK(groups.compare("all-to-all", bytes, [&](Collectives& group) {
      return group.all_to_all(in, rows, out, rows);
    }));
  }
  return {};
}

int bench(int nodes, int ranks_each) {
  std::vector<int> node_of;
  for (int rank = 0; rank < nodes * ranks_each; ++rank) node_of.push_back(rank / ranks_each);
  const int ranks = static_cast<int>(node_of.size());
  const test::Seats in_levels(node_of, room_bytes);
  const test::Seats flat(test::Backend::network, ranks, room_bytes);
  fmt::print("\n{} nodes of {} ranks, us a call\n{:<12} {:>9} {:>14} {:>12} {:>7}\n", nodes,
             ranks_each, "", "bytes", "hierarchical", "all network", "ratio");
  std::fflush(stdout);
  const auto complaints = test::run_forked(
      ranks,
      [&](int rank) {
        const Groups groups{in_levels.take(rank), flat.take(rank)};
        const Result<void> done = bench_calls(groups);
        return done ? std::string() : done.error().message;
      },
      limit_seconds);
  for (const std::string& complaint : complaints) {
    if (complaint.empty()) continue;
    fmt::print(stderr, "{}\n", complaint);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace troupe

int main() { return troupe::bench(2, 2) + troupe::bench(4, 2); }
