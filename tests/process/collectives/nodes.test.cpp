// HierarchicalCollectives: groups over several nodes, which are processes that share memory with
// some of the others only.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/process/collectives/forked_ranks.hpp"
#include "tests/process/collectives/random_operations.hpp"
#include "tests/process/collectives/seats.hpp"

namespace troupe {
namespace {

using namespace test;  // NOLINT: these tests are about nothing else
using Nodes = std::vector<int>;

constexpr Operation all_operations[] = {all_reduce, reduce_scatter, all_gather,
                                        broadcast,  all_to_all,     ring_of_messages};

// Every way of dealing `ranks` in order to at most `nodes` nodes.
std::vector<Nodes> arrangements(int ranks, int nodes) {
  std::vector<Nodes> found;
  for (unsigned cuts = 0; cuts < 1u << (ranks - 1); ++cuts) {
    Nodes node_of{0};
    for (int r = 1; r < ranks; ++r) {
      node_of.push_back(node_of.back() + static_cast<int>(cuts >> (r - 1) & 1));
    }
    if (node_of.back() < nodes) found.push_back(node_of);
  }
  return found;
}

// Each operation compares what it gets with the bytes that one process computes.
std::string run_calls(const Seats& seats, int rank, unsigned seed, int steps) {
  auto group = seats.take(rank);
  std::mt19937 random(seed);  // the same draws on every rank
  for (int step = 0; step < steps; ++step) {
    const Operation operation =
        all_operations[static_cast<std::size_t>(step) % std::size(all_operations)];
    std::string complaint = operation(*group, {seed, step, seats.ranks()}, random);
    if (!complaint.empty()) return fmt::format("step {}: {}", step, complaint);
  }
  const auto met = group->barrier();
  return met ? "" : met.error().message;
}

void expect_right_bytes(const Nodes& node_of, unsigned seed, int steps) {
  const Seats seats(node_of, seed % 2 == 0 ? 4096 : 65536);
  const auto complaints =
      run_forked(seats.ranks(), [&](int rank) { return run_calls(seats, rank, seed, steps); });
  for (std::size_t r = 0; r < complaints.size(); ++r) {
    EXPECT_EQ(complaints[r], "") << "rank " << r << ", nodes " << fmt::format("{}", node_of);
  }
}

TEST(HierarchicalProcesses, calls_of_up_to_four_ranks_on_any_nodes_have_the_bytes_of_one_process) {
  unsigned seed = 0;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const Nodes& node_of : arrangements(ranks, 4)) expect_right_bytes(node_of, ++seed, 24);
  }
}

TEST(HierarchicalProcesses, calls_of_more_ranks_on_any_four_nodes_have_the_bytes_of_one_process) {
  unsigned seed = 100;
  for (int ranks = 5; ranks <= 8; ++ranks) {
    for (const Nodes& node_of : arrangements(ranks, 4)) expect_right_bytes(node_of, ++seed, 6);
  }
}

TEST(HierarchicalProcesses, ranks_of_a_node_need_not_be_neighbours) {
  for (const Nodes& node_of : {Nodes{0, 1, 0, 1}, Nodes{1, 0, 0, 1}, Nodes{0, 1, 2, 0, 1, 2, 0},
                               Nodes{0, 1, 1, 0, 2, 0, 1, 0}}) {
    expect_right_bytes(node_of, 7, 24);
  }
}

// What the other ranks of 2 + 2 find when the last one ends its part in `end`.
std::vector<std::string> others_find(const std::function<void(Collectives&)>& end) {
  const Seats seats({0, 0, 1, 1}, 4096);
  return run_forked(4, [&](int rank) -> std::string {
    auto group = seats.take(rank);
    // The last rank may end while others are still in this barrier.
    if (auto met = group->barrier(); !met) return std::string(to_string(met.error().code));
    if (rank == 3) {
      end(*group);
      return {};
    }
    group->set_timeout(std::chrono::seconds(30));
    const auto begin = std::chrono::steady_clock::now();
    const auto waited = group->barrier();
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) return "late";
    return waited ? "no error" : std::string(to_string(waited.error().code));
  });
}

TEST(HierarchicalProcesses, rank_that_is_killed_ends_the_waits_on_its_node_and_on_others) {
  const auto found = others_find([](Collectives&) { ::kill(::getpid(), SIGKILL); });
  int named = 0;
  for (const int r : {0, 1, 2}) {
    const auto& code = found[static_cast<std::size_t>(r)];
    EXPECT_TRUE(code == "peer_died" || code == "cancelled") << "rank " << r << ": " << code;
    named += code == "peer_died" ? 1 : 0;
  }
  EXPECT_GE(named, 1);
}

TEST(HierarchicalProcesses, abort_ends_the_waits_on_its_node_and_on_others) {
  const auto found = others_find([](Collectives& group) { group.abort(); });
  for (const int r : {0, 1, 2}) EXPECT_EQ(found[static_cast<std::size_t>(r)], "cancelled");
}

}  // namespace
}  // namespace troupe
