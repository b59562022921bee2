#include "parallel/collectives/shm_collectives.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/process/collectives/forked_ranks.hpp"

namespace troupe {
namespace {

using test::run_forked;
using Floats = std::vector<float>;
using Rows = std::vector<std::int64_t>;

Tensor view(const Floats& values) {
  return {
      const_cast<float*>(values.data()), DType::f32, {static_cast<std::int64_t>(values.size())}};
}
Tensor view(const Floats& values, std::int64_t cols) {
  return view(values).reshaped({static_cast<std::int64_t>(values.size()) / cols, cols});
}

// What rank `rank` contributes in step `step`: magnitudes from 2^-12 to 2^12, so that the order of
// a sum shows in its bits. Every rank can compute everybody's.
Floats contribution(unsigned seed, int step, int rank, std::size_t count) {
  std::mt19937 random(seed * 7919u + static_cast<unsigned>(step) * 104729u +
                      static_cast<unsigned>(rank));
  Floats values(count);
  for (float& value : values) {
    const auto bits = random();
    value = std::ldexp(static_cast<float>(bits >> 8) - 8388608.0f,
                       static_cast<int>(bits % 25u) - 12 - 23);
  }
  return values;
}

float sequential_tree(const std::vector<Floats>& terms, std::size_t i, std::size_t from,
                      std::size_t count) {
  if (count == 1) return terms[from][i];
  std::size_t half = 1;
  while (half * 2 < count) half *= 2;
  return sequential_tree(terms, i, from, half) +
         sequential_tree(terms, i, from + half, count - half);
}

struct Step {
  unsigned seed;
  int step;
  int size;

  std::vector<Floats> contributions(std::size_t count) const {
    std::vector<Floats> all;
    for (int r = 0; r < size; ++r) all.push_back(contribution(seed, step, r, count));
    return all;
  }
  Floats tree(std::size_t count) const {
    const std::vector<Floats> all = contributions(count);
    Floats sums(count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = sequential_tree(all, i, 0, all.size());
    return sums;
  }
  std::string compare(std::string_view what, const Floats& expected, const Floats& found) const {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(expected[i]) == std::bit_cast<std::uint32_t>(found[i])) {
        continue;
      }
      return fmt::format("{}, seed {}, step {}, {} ranks, element {} of {}: expected {}, found {}",
                         what, seed, step, size, i, expected.size(), expected[i], found[i]);
    }
    return {};
  }
};

// Element counts that matter: none, one, around a cache line and a slot, and anything up to several
// slots. All ranks draw the same.
std::size_t random_count(std::mt19937& random) {
  constexpr std::size_t special[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 2048};
  if (random() % 3 == 0) return special[random() % std::size(special)];
  return random() % 5000;
}

Rows random_rows(std::mt19937& random, int size) {
  Rows rows(static_cast<std::size_t>(size));
  for (auto& count : rows)
    count = random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % 300);
  return rows;
}

std::string all_reduce(Collectives& group, const Step& step, std::mt19937& random) {
  const std::size_t count = random_count(random);
  const Floats own = contribution(step.seed, step.step, group.rank(), count);
  Floats sum(count, -1.0f);
  const unsigned way = random() % 3;
  if (way == 0) {
    sum = own;
    if (auto done = group.all_reduce_tree(view(sum)); !done) return done.error().message;
  } else {
    Tensor partial = view(own);
    // Ranks may differ in whether they stage.
    const Tensor staged = group.staging(DType::f32, partial.shape());
    if (way == 1 && group.rank() != 1 && staged.data() != nullptr) {
      if (count > 0) std::memcpy(staged.data(), own.data(), partial.bytes());
      partial = staged;
    }
    if (auto done = group.all_reduce_tree(partial, view(sum)); !done) return done.error().message;
  }
  return step.compare("all-reduce", step.tree(count), sum);
}

std::string reduce_scatter(Collectives& group, const Step& step, std::mt19937& random) {
  const Rows rows = random_rows(random, step.size);
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) * cols;
  const auto rank = static_cast<std::size_t>(group.rank());
  const Floats own =
      contribution(step.seed, step.step, group.rank(), static_cast<std::size_t>(total));
  Floats sum(static_cast<std::size_t>(rows[rank] * cols), -1.0f);
  Tensor partial = view(own, cols);
  const Tensor staged = group.staging(DType::f32, partial.shape());
  if (random() % 2 == 0 && staged.data() != nullptr) {
    if (total > 0) std::memcpy(staged.data(), own.data(), partial.bytes());
    partial = staged;
  }
  if (auto done = group.reduce_scatter_tree(partial, view(sum, cols), rows); !done) {
    return done.error().message;
  }
  const Floats whole = step.tree(static_cast<std::size_t>(total));
  const auto begin =
      whole.begin() + std::accumulate(rows.begin(), rows.begin() + group.rank(), 0l) * cols;
  return step.compare("reduce-scatter", Floats(begin, begin + rows[rank] * cols), sum);
}

std::string all_gather(Collectives& group, const Step& step, std::mt19937& random) {
  const Rows rows = random_rows(random, step.size);
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  Floats expected;
  Floats own;
  std::size_t own_begin = 0;
  for (int r = 0; r < step.size; ++r) {
    const Floats part =
        contribution(step.seed, step.step, r,
                     static_cast<std::size_t>(rows[static_cast<std::size_t>(r)] * cols));
    if (r == group.rank()) {
      own = part;
      own_begin = expected.size();
    }
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Floats found(expected.size(), -1.0f);
  Tensor part = view(own, cols);
  if (random() % 2 == 0) {
    std::copy(own.begin(), own.end(), found.begin() + static_cast<long>(own_begin));
    part = view(found, cols).rows(static_cast<std::int64_t>(own_begin) / cols, part[0]);
  }
  if (auto done = group.all_gather(part, view(found, cols), rows); !done) {
    return done.error().message;
  }
  return step.compare("all-gather", expected, found);
}

std::string broadcast(Collectives& group, const Step& step, std::mt19937& random) {
  const std::size_t count = random_count(random);
  const int root = static_cast<int>(random() % static_cast<unsigned>(step.size));
  const Floats expected = contribution(step.seed, step.step, root, count);
  Floats found = contribution(step.seed, step.step, group.rank(), count);
  if (auto done = group.broadcast(view(found), root); !done) return done.error().message;
  return step.compare("broadcast", expected, found);
}

std::string all_to_all(Collectives& group, const Step& step, std::mt19937& random) {
  const std::int64_t cols = 1 + static_cast<std::int64_t>(random() % 9);
  std::vector<Rows> rows;  // [sender][receiver]
  for (int s = 0; s < step.size; ++s) rows.push_back(random_rows(random, step.size));
  const auto rank = static_cast<std::size_t>(group.rank());
  Floats expected;
  Rows receive_rows;
  Floats own;
  for (int s = 0; s < step.size; ++s) {
    const Rows& sent = rows[static_cast<std::size_t>(s)];
    const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0}) * cols;
    const Floats all = contribution(step.seed, step.step, s, static_cast<std::size_t>(total));
    if (s == group.rank()) own = all;
    const auto begin =
        all.begin() + std::accumulate(sent.begin(), sent.begin() + group.rank(), 0l) * cols;
    expected.insert(expected.end(), begin, begin + sent[rank] * cols);
    receive_rows.push_back(sent[rank]);
  }
  Floats found(expected.size(), -1.0f);
  auto done = group.all_to_all(view(own, cols), rows[rank], view(found, cols), receive_rows);
  if (!done) return done.error().message;
  return step.compare("all-to-all", expected, found);
}

SharedMemory make_region(int ranks, std::size_t slot_bytes) {
  auto region = SharedMemory::create(shm_collectives_bytes(ranks, slot_bytes));
  EXPECT_TRUE(region.ok());
  return std::move(*region);
}

std::unique_ptr<ShmCollectives> attach(const SharedMemory& region, int rank, int ranks) {
  auto fd = region.duplicate_fd();
  auto mapped = SharedMemory::map(std::move(*fd));
  auto group = ShmCollectives::attach(std::move(*mapped), rank, ranks);
  if (!group) std::abort();
  return std::move(*group);
}

std::string join(const std::vector<std::string>& complaints) {
  std::string all;
  for (std::size_t r = 0; r < complaints.size(); ++r) {
    if (!complaints[r].empty()) all += fmt::format("rank {}: {}\n", r, complaints[r]);
  }
  return all;
}

class ShmCollectivesProcesses : public testing::TestWithParam<int> {};

using Operation = std::string (*)(Collectives&, const Step&, std::mt19937&);

std::string run_steps(const SharedMemory& region, int rank, int ranks, unsigned seed, int steps,
                      std::span<const Operation> operations) {
  auto group = attach(region, rank, ranks);
  std::mt19937 random(seed);  // the same draws on every rank
  for (int step = 0; step < steps; ++step) {
    const Operation operation = operations[random() % operations.size()];
    std::string complaint = operation(*group, {seed, step, ranks}, random);
    if (!complaint.empty()) return complaint;
    if (random() % 8 == 0) {
      if (auto done = group->barrier(); !done) return done.error().message;
    }
  }
  return {};
}

TEST_P(ShmCollectivesProcesses, all_reduce_has_the_bits_of_the_sequential_tree_on_every_rank) {
  const int ranks = GetParam();
  for (const unsigned seed : {1u, 2u, 3u}) {
    const SharedMemory region = make_region(ranks, 4096);
    const Operation operations[] = {all_reduce};
    EXPECT_EQ(join(run_forked(
                  ranks,
                  [&](int rank) { return run_steps(region, rank, ranks, seed, 150, operations); })),
              "");
  }
}

TEST_P(ShmCollectivesProcesses, any_sequence_of_collectives_moves_the_right_bytes) {
  const int ranks = GetParam();
  for (const unsigned seed : {11u, 12u, 13u, 14u}) {
    const SharedMemory region = make_region(ranks, seed % 2 == 0 ? 4096 : 65536);
    const Operation operations[] = {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all};
    EXPECT_EQ(join(run_forked(
                  ranks,
                  [&](int rank) { return run_steps(region, rank, ranks, seed, 200, operations); })),
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
  const Rows rows(static_cast<std::size_t>(group.size()), 1);
  Floats part(1);
  Floats all(rows.size());
  const auto waiting = group.all_gather(view(part), view(all), rows);
  if (aborter.joinable()) aborter.join();
  if (group.rank() == 0 && ::write(tell_last, "x", 1) != 1) return "cannot tell the last rank";
  if (waiting.ok()) return "the waiting call succeeded";
  return waiting.error().code == ErrorCode::cancelled ? "" : waiting.error().message;
}

TEST_P(ShmCollectivesProcesses, abort_from_another_thread_cancels_the_calls_of_every_rank) {
  const int ranks = GetParam();
  constexpr int rounds = 40;
  std::vector<SharedMemory> regions;
  for (int i = 0; i < rounds; ++i) regions.push_back(make_region(ranks, 4096));
  int to_last[2];
  ASSERT_EQ(::pipe(to_last), 0);
  const auto complaints = run_forked(ranks, [&](int rank) -> std::string {
    for (int i = 0; i < rounds; ++i) {
      auto group = attach(regions[static_cast<std::size_t>(i)], rank, ranks);
      if (auto done = group->barrier(); !done) return done.error().message;
      if (rank < ranks - 1) {
        const std::string complaint = wait_for_abort(*group, i * i, to_last[1]);
        if (!complaint.empty()) return complaint;
      } else if (char byte = 0; ::read(to_last[0], &byte, 1) != 1) {
        return "rank 0 is gone";
      }
      Floats values(10'000, 1.0f);
      const auto later = group->all_reduce_tree(view(values));
      if (later.ok() || later.error().code != ErrorCode::cancelled) return "a later call was not";
    }
    return {};
  });
  EXPECT_EQ(join(complaints), "");
  ::close(to_last[0]);
  ::close(to_last[1]);
}

TEST_P(ShmCollectivesProcesses, a_rank_that_is_killed_is_named_by_the_timeout_of_the_others) {
  const int ranks = GetParam();
  const SharedMemory region = make_region(ranks, 4096);
  const auto complaints = run_forked(ranks, [&](int rank) -> std::string {
    auto group = attach(region, rank, ranks);
    if (auto done = group->barrier(); !done) return done.error().message;
    if (rank == ranks - 1) ::kill(::getpid(), SIGKILL);
    group->set_timeout(std::chrono::milliseconds(100));
    const auto done = group->barrier();
    return done.ok() ? "no error"
                     : std::string(to_string(done.error().code)) + done.error().message;
  });
  EXPECT_EQ(complaints.back(), fmt::format("died of signal {}", SIGKILL));
  // The first rank to give up says who was missing; that ends the wait of the rest.
  const std::string missing = fmt::format("rank {} did not come within 100 ms", ranks - 1);
  int named = 0;
  for (int r = 0; r + 1 < ranks; ++r) {
    const std::string& complaint = complaints[static_cast<std::size_t>(r)];
    const bool names = complaint.starts_with("timeout") && complaint.ends_with(missing);
    named += names ? 1 : 0;
    EXPECT_TRUE(names || complaint.starts_with("cancelled")) << "rank " << r << ": " << complaint;
  }
  EXPECT_GE(named, 1);
}

TEST_P(ShmCollectivesProcesses, ranks_in_different_calls_are_told_so) {
  const int ranks = GetParam();
  const SharedMemory region = make_region(ranks, 4096);
  const auto complaints = run_forked(ranks, [&](int rank) -> std::string {
    auto group = attach(region, rank, ranks);
    const Floats values(rank == 0 ? 8 : 9, 1.0f);
    const auto done = group->all_reduce_tree(view(values));
    if (done.ok()) return "no error";
    const ErrorCode code = done.error().code;
    const bool told = code == ErrorCode::invalid_argument || code == ErrorCode::cancelled;
    return told ? "" : done.error().message;
  });
  EXPECT_EQ(join(complaints), "");
}

INSTANTIATE_TEST_SUITE_P(ranks, ShmCollectivesProcesses, testing::Values(2, 3, 4),
                         [](const auto& instance) { return std::to_string(instance.param); });

}  // namespace
}  // namespace troupe
