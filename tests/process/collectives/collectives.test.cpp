#include <functional>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/process/collectives/forked_ranks.hpp"
#include "tests/process/collectives/random_operations.hpp"
#include "tests/process/collectives/seats.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe {
namespace {

using namespace test;  // NOLINT: these tests are about nothing else

constexpr std::chrono::milliseconds stall_limit{150 * time_scale};

std::string join(const std::vector<std::string>& complaints) {
  std::string all;
  for (std::size_t r = 0; r < complaints.size(); ++r) {
    if (!complaints[r].empty()) all += fmt::format("rank {}: {}\n", r, complaints[r]);
  }
  return all;
}

std::string outcome(const Result<void>& done) {
  if (done.ok()) return "no error";
  return fmt::format("{}: {}", to_string(done.error().code), done.error().message);
}

struct Param {
  Backend backend;
  int ranks;
};

class CollectivesProcesses : public testing::TestWithParam<Param> {
 protected:
  Seats seats(std::size_t piece_bytes = 4096) const {
    return {GetParam().backend, GetParam().ranks, piece_bytes};
  }
  // Small pieces over TCP take ten times as long.
  int steps() const { return GetParam().backend == Backend::shm ? 200 : 60; }
};

std::string run_steps(const Seats& seats, int rank, unsigned seed, int steps,
                      std::span<const Operation> operations) {
  auto group = seats.take(rank);
  std::mt19937 random(seed);  // the same draws on every rank
  for (int step = 0; step < steps; ++step) {
    const Operation operation = operations[random() % operations.size()];
    std::string complaint = operation(*group, {seed, step, seats.ranks()}, random);
    if (!complaint.empty()) return complaint;
    if (random() % 8 == 0) {
      if (auto done = group->barrier(); !done) return done.error().message;
    }
  }
  return {};
}

TEST_P(CollectivesProcesses, all_reduce_has_the_bits_of_the_sequential_tree_on_every_rank) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const Seats group = seats();
    const Operation operations[] = {all_reduce};
    EXPECT_EQ(
        join(run_forked(group.ranks(),
                        [&](int rank) { return run_steps(group, rank, seed, 150, operations); })),
        "");
  }
}

TEST_P(CollectivesProcesses, any_sequence_of_calls_moves_the_right_bytes) {
  for (const unsigned seed : {11u, 12u, 13u, 14u}) {
    const Seats group = seats(seed % 2 == 0 ? 4096 : 65536);
    const Operation operations[] = {all_reduce, reduce_scatter, all_gather,
                                    broadcast,  all_to_all,     ring_of_messages};
    EXPECT_EQ(join(run_forked(
                  group.ranks(),
                  [&](int rank) { return run_steps(group, rank, seed, steps(), operations); })),
              "");
  }
}

// Waits in an all-gather that the last rank never joins, while rank 0 aborts after `yields`.
std::string wait_for_abort(Collectives& group, int yields, int tell_last) {
  std::thread aborter;
  if (group.rank() == 0) {
    aborter = std::thread([&] {
      for (int i = 0; i < yields; ++i) std::this_thread::yield();
      group.abort();
    });
  }
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()), 1);
  Floats part(1);
  Floats all(rows.size());
  const auto waiting = group.all_gather(view(part), view(all), rows);
  if (aborter.joinable()) aborter.join();
  if (group.rank() == 0 && ::write(tell_last, "x", 1) != 1) return "cannot tell the last rank";
  if (waiting.ok()) return "the waiting call succeeded";
  return waiting.error().code == ErrorCode::cancelled ? "" : outcome(waiting);
}

TEST_P(CollectivesProcesses, abort_from_another_thread_cancels_the_calls_of_every_rank) {
  const int ranks = GetParam().ranks;
  const int rounds = GetParam().backend == Backend::shm ? 40 : 8;
  std::vector<Seats> groups;
  for (int i = 0; i < rounds; ++i) groups.push_back(seats());
  int to_last[2];
  ASSERT_EQ(::pipe(to_last), 0);
  const auto complaints = run_forked(ranks, [&](int rank) -> std::string {
    for (int i = 0; i < rounds; ++i) {
      auto group = groups[static_cast<std::size_t>(i)].take(rank);
      // Rank 0 may have left the barrier, and aborted, before all others have. Those calls may
      // fail.
      const auto met = group->barrier();
      const bool cut = GetParam().backend == Backend::network && !met.ok() &&
                       met.error().code == ErrorCode::cancelled;
      if (!met && !cut) return outcome(met);
      if (rank < ranks - 1) {
        const std::string complaint = wait_for_abort(*group, i * i, to_last[1]);
        if (!complaint.empty()) return complaint;
      } else if (char byte = 0; ::read(to_last[0], &byte, 1) != 1) {
        return "rank 0 is gone";
      }
      Floats values(10'000, 1.0f);
      const auto later = group->all_reduce_tree(view(values));
      if (later.ok() || later.error().code != ErrorCode::cancelled) {
        return "a later call: " + outcome(later);
      }
    }
    return {};
  });
  EXPECT_EQ(join(complaints), "");
  ::close(to_last[0]);
  ::close(to_last[1]);
}

TEST_P(CollectivesProcesses, a_rank_that_is_stopped_is_named_by_the_timeout_of_the_others) {
  const int ranks = GetParam().ranks;
  const Seats group_seats = seats();
  int met[2];
  int finished[2];
  ASSERT_EQ(::pipe(met), 0);
  ASSERT_EQ(::pipe(finished), 0);
  const auto complaints = run_forked(ranks, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    if (auto done = group->barrier(); !done) return outcome(done);
    char byte = 0;
    if (rank < ranks - 1 && ::write(met[1], "x", 1) != 1) return "cannot tell";
    if (rank == ranks - 1) {
      // What this rank has put may still be under way by another thread of it.
      for (int i = 0; i + 1 < ranks; ++i) {
        if (::read(met[0], &byte, 1) != 1) return "a rank is gone";
      }
      // Stopped, with all threads, until another process has seen all others give up.
      const pid_t self = ::getpid();
      if (::fork() == 0) {
        ::close(finished[1]);
        for (int i = 0; i + 1 < ranks && ::read(finished[0], &byte, 1) == 1;) ++i;
        ::kill(self, SIGKILL);
        ::_exit(0);
      }
      ::kill(self, SIGSTOP);
    }
    group->set_timeout(stall_limit);
    const std::string found = outcome(group->barrier());
    return ::write(finished[1], "x", 1) == 1 ? found : "cannot tell";
  });
  for (const int fd : {met[0], met[1], finished[0], finished[1]}) ::close(fd);
  EXPECT_EQ(complaints.back(), fmt::format("died of signal {}", SIGKILL));
  // The first rank to give up reports who was missing; that ends the others' wait.
  const std::string missing =
      fmt::format("rank {} did not come within {} ms", ranks - 1, stall_limit.count());
  int named = 0;
  for (int r = 0; r + 1 < ranks; ++r) {
    const std::string& complaint = complaints[static_cast<std::size_t>(r)];
    const bool names = complaint.starts_with("timed_out") && complaint.ends_with(missing);
    named += names ? 1 : 0;
    EXPECT_TRUE(names || complaint.starts_with("cancelled")) << "rank " << r << ": " << complaint;
  }
  EXPECT_GE(named, 1);
}

TEST_P(CollectivesProcesses, a_rank_that_is_killed_ends_the_calls_of_the_others) {
  const auto [backend, ranks] = GetParam();
  const Seats group_seats = seats();
  const auto complaints = run_forked(ranks, [&, ranks = ranks, backend = backend](int rank) {
    auto group = group_seats.take(rank);
    if (auto done = group->barrier(); !done) return outcome(done);
    if (rank == ranks - 1) ::kill(::getpid(), SIGKILL);
    // Over TCP the others are notified; in shared memory only the timeout shows it.
    group->set_timeout(backend == Backend::shm ? std::chrono::milliseconds(100)
                                               : std::chrono::seconds(20));
    const auto begin = std::chrono::steady_clock::now();
    std::string found = outcome(group->barrier());
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) found += ", but late";
    return found;
  });
  EXPECT_EQ(complaints.back(), fmt::format("died of signal {}", SIGKILL));
  const std::string_view expected = backend == Backend::shm ? "timed_out" : "peer_died";
  int noticed = 0;
  for (int r = 0; r + 1 < ranks; ++r) {
    const std::string& complaint = complaints[static_cast<std::size_t>(r)];
    const bool first = complaint.starts_with(expected) &&
                       complaint.find(fmt::format("rank {}", ranks - 1)) != std::string::npos;
    noticed += first ? 1 : 0;
    EXPECT_TRUE(first || complaint.starts_with("cancelled")) << "rank " << r << ": " << complaint;
    EXPECT_FALSE(complaint.ends_with("late")) << "rank " << r << ": " << complaint;
  }
  EXPECT_GE(noticed, 1);
}

TEST_P(CollectivesProcesses, ranks_in_different_calls_are_told_so) {
  const Seats group_seats = seats();
  const auto complaints = run_forked(GetParam().ranks, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    const Floats values(rank == 0 ? 8 : 9, 1.0f);
    const auto done = group->all_reduce_tree(view(values));
    if (done.ok()) return "no error";
    const ErrorCode code = done.error().code;
    return code == ErrorCode::cancelled ? "" : outcome(done);
  });
  int told = 0;
  for (int r = 0; r < GetParam().ranks; ++r) {
    const std::string& complaint = complaints[static_cast<std::size_t>(r)];
    told += complaint.starts_with("invalid_argument") ? 1 : 0;
    EXPECT_TRUE(complaint.empty() || complaint.starts_with("invalid_argument"))
        << "rank " << r << ": " << complaint;
  }
  EXPECT_GE(told, 1);
}

INSTANTIATE_TEST_SUITE_P(ranks, CollectivesProcesses,
                         testing::Values(Param{Backend::shm, 2}, Param{Backend::shm, 3},
                                         Param{Backend::shm, 4}, Param{Backend::network, 2},
                                         Param{Backend::network, 3}, Param{Backend::network, 4}),
                         [](const auto& instance) {
                           return fmt::format("{}_{}", to_string(instance.param.backend),
                                              instance.param.ranks);
                         });

}  // namespace
}  // namespace troupe
