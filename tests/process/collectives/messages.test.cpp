#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/process/collectives/forked_ranks.hpp"
#include "tests/process/collectives/seats.hpp"

namespace troupe {
namespace {

using test::Backend;
using test::run_forked;
using test::Seats;
using Bytes = std::vector<std::uint8_t>;
using Complaints = std::vector<std::string>;

constexpr std::size_t room = 4096;

Tensor view(const Bytes& bytes) {
  return {const_cast<std::uint8_t*>(bytes.data()),
          DType::u8,
          {static_cast<std::int64_t>(bytes.size())}};
}

Bytes message(std::size_t bytes, int number) {
  Bytes content(bytes);
  std::iota(content.begin(), content.end(), static_cast<std::uint8_t>(number * 31 + 7));
  return content;
}

std::string outcome(const Result<void>& done) {
  if (done.ok()) return "no error";
  return fmt::format("{}: {}", to_string(done.error().code), done.error().message);
}

std::string receive(Collectives& group, int from, const Bytes& expected) {
  Bytes found(expected.size(), 0xee);
  if (auto done = group.receive(view(found), from); !done) return outcome(done);
  return found == expected ? "" : fmt::format("a message of {} bytes differs", expected.size());
}

class MessagesProcesses : public testing::TestWithParam<Backend> {
 protected:
  Seats seats(int ranks) const { return {GetParam(), ranks, room}; }
};

TEST_P(MessagesProcesses, any_size_arrives_in_order) {
  const Seats group_seats = seats(2);
  const std::size_t sizes[] = {
      0, 1, 7, 8, 1000, 0, room - 16, room, room + 1, 5 * room + 3, 1, 1'000'003, 2, 63, 64, 65};
  const auto complaints = run_forked(2, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    for (int i = 0; i < std::ssize(sizes); ++i) {
      if (rank == 0) {
        if (auto done = group->send(view(message(sizes[i], i)), 1); !done) return outcome(done);
      } else if (auto complaint = receive(*group, 0, message(sizes[i], i)); !complaint.empty()) {
        return complaint;
      }
    }
    return {};
  });
  EXPECT_EQ(complaints, Complaints(2));
}

TEST_P(MessagesProcesses, many_are_on_their_way_before_the_receiver_takes_any) {
  const Seats group_seats = seats(3);
  const auto complaints = run_forked(3, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    // All send to all first; the barrier shows that none waited for a receiver.
    for (int i = 0; i < 20; ++i) {
      for (int to = 0; to < 3; ++to) {
        if (to == rank) continue;
        const auto bytes = std::size_t{3} * i + to;
        if (auto done = group->send(view(message(bytes, i)), to); !done) return outcome(done);
      }
    }
    if (auto done = group->barrier(); !done) return outcome(done);
    for (int i = 0; i < 20; ++i) {
      for (int from = 2; from >= 0; --from) {
        if (from == rank) continue;
        const auto bytes = std::size_t{3} * i + rank;
        auto complaint = receive(*group, from, message(bytes, i));
        if (!complaint.empty()) return complaint;
      }
    }
    return {};
  });
  EXPECT_EQ(complaints, Complaints(3));
}

TEST_P(MessagesProcesses, both_directions_run_at_once) {
  const Seats group_seats = seats(2);
  const auto complaints = run_forked(2, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    for (int i = 0; i < 300; ++i) {
      const auto bytes = static_cast<std::size_t>(i * 17 % 2500);
      if (auto done = group->send(view(message(bytes, i + rank)), 1 - rank); !done) {
        return outcome(done);
      }
      auto complaint = receive(*group, 1 - rank, message(bytes, i + 1 - rank));
      if (!complaint.empty()) return complaint;
    }
    return {};
  });
  EXPECT_EQ(complaints, Complaints(2));
}

TEST_P(MessagesProcesses, what_was_sent_before_the_sender_left_arrives) {
  const Seats group_seats = seats(2);
  const auto complaints = run_forked(2, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    if (rank == 0) {
      for (int i = 0; i < 5; ++i) {
        if (auto done = group->send(view(message(700, i)), 1); !done) return outcome(done);
      }
      return {};
    }
    for (int i = 0; i < 5; ++i) {
      if (auto complaint = receive(*group, 0, message(700, i)); !complaint.empty()) {
        return complaint;
      }
    }
    return {};
  });
  EXPECT_EQ(complaints, Complaints(2));
}

// Rank 0 stops rank 2, ends its own part by `end` and continues rank 2, which then finds the
// shutdown notice and the end of the connection at once.
template <class End, class Others>
Complaints end_while_stopped(const End& end, const Others& others) {
  const Seats group_seats(Backend::network, 3, room);
  int pids[2];
  int ended[2];
  if (::pipe(pids) != 0 || ::pipe(ended) != 0) return {"no pipe"};
  auto complaints = run_forked(3, [&](int rank) -> std::string {
    auto group = group_seats.take(rank);
    pid_t pid = ::getpid();
    if (rank == 2 && ::write(pids[1], &pid, sizeof(pid)) != sizeof(pid)) return "cannot tell";
    if (rank != 0) return others(group, ended[0]);
    if (::read(pids[0], &pid, sizeof(pid)) != sizeof(pid)) return "rank 2 is gone";
    ::kill(pid, SIGSTOP);
    end(group);
    ::kill(pid, SIGCONT);
    return ::write(ended[1], "x", 1) == 1 ? "" : "cannot tell that it is over";
  });
  for (const int fd : {pids[0], pids[1], ended[0], ended[1]}) ::close(fd);
  return complaints;
}

TEST(StoppedRank, hears_an_abort_as_one) {
  const auto complaints =
      end_while_stopped([](auto& group) { group->abort(); },
                        [](auto& group, int) {
                          const std::string found = outcome(group->barrier());
                          return found.starts_with("cancelled") ? std::string() : found;
                        });
  EXPECT_EQ(complaints, Complaints(3));
}

TEST(StoppedRank, goes_on_with_the_others_when_one_has_said_goodbye) {
  const auto complaints =
      end_while_stopped([](auto& group) { group.reset(); },
                        [](auto& group, int ended) -> std::string {
                          const int other = 3 - group->rank();
                          char byte = 0;
                          if (other == 2 && ::read(ended, &byte, 1) != 1) return "rank 0 is gone";
                          for (int i = 0; i < 100; ++i) {
                            if (auto done = group->send(view(message(100, i)), other); !done)
                              return outcome(done);
                            auto complaint = receive(*group, other, message(100, i));
                            if (!complaint.empty()) return complaint;
                          }
                          return {};
                        });
  EXPECT_EQ(complaints, Complaints(3));
}

// Rank 0 sends too much to rank 1, or receives from it, while rank 1 waits for `release`; rank 2
// does `meanwhile`. Returns the outcome of rank 0's call.
class WaitingMessages : public testing::TestWithParam<std::tuple<Backend, bool>> {
 protected:
  template <class Meanwhile>
  std::string run(std::chrono::milliseconds timeout, const Meanwhile& meanwhile) {
    const auto [backend, sends] = GetParam();
    const Seats group_seats(backend, 3, room);
    int met[2];
    int release[2];
    if (::pipe(met) != 0 || ::pipe(release) != 0) return "no pipe";
    const auto complaints = run_forked(3, [&, sends = sends](int rank) -> std::string {
      auto group = group_seats.take(rank);
      if (auto done = group->barrier(); !done) return outcome(done);
      char byte = 0;
      if (rank != 2 && ::write(met[1], "x", 1) != 1) return "cannot tell";
      if (rank == 2) {
        // What this rank has put may still be under way by another thread of it.
        for (int i = 0; i < 2; ++i) {
          if (::read(met[0], &byte, 1) != 1) return "a rank is gone";
        }
        return meanwhile(*group);
      }
      if (rank == 1) return ::read(release[0], &byte, 1) == 1 ? "" : "rank 0 is gone";
      group->set_timeout(timeout);
      const Bytes large(10 * room);
      const auto begin = std::chrono::steady_clock::now();
      std::string found =
          outcome(sends ? group->send(view(large), 1) : group->receive(view(large), 1));
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) found += ", late";
      return ::write(release[1], "x", 1) == 1 ? found : "cannot release rank 1";
    });
    for (const int fd : {met[0], met[1], release[0], release[1]}) ::close(fd);
    EXPECT_EQ(complaints[1], "");
    third_ = complaints[2];
    return complaints[0];
  }

  std::string third_;
};

TEST_P(WaitingMessages, end_when_another_rank_aborts) {
  const std::string found = run(std::chrono::seconds(30), [](Collectives& group) {
    group.abort();
    return std::string();
  });
  EXPECT_TRUE(found.starts_with("cancelled")) << found;
  EXPECT_FALSE(found.ends_with("late")) << found;
  EXPECT_EQ(third_, "");
}

TEST_P(WaitingMessages, end_at_the_timeout_which_names_the_other_rank) {
  const std::string found = run(std::chrono::milliseconds(100), [](Collectives& group) {
    const auto done = group.barrier();
    return done.ok() || done.error().code != ErrorCode::cancelled ? outcome(done) : std::string();
  });
  EXPECT_TRUE(found.starts_with("timed_out")) << found;
  EXPECT_TRUE(found.ends_with("rank 1 did not come within 100 ms")) << found;
  EXPECT_EQ(third_, "");
}

TEST_P(WaitingMessages, end_when_a_third_rank_is_killed_where_that_is_seen) {
  if (std::get<Backend>(GetParam()) == Backend::shm) GTEST_SKIP() << "only the timeout shows it";
  const std::string found = run(std::chrono::seconds(30), [](Collectives&) -> std::string {
    ::kill(::getpid(), SIGKILL);
    return {};
  });
  // Rank 1 may see it first, and abort.
  const bool told = found.starts_with("peer_died") && found.find("rank 2") != std::string::npos;
  EXPECT_TRUE(told || found.starts_with("cancelled")) << found;
  EXPECT_FALSE(found.ends_with("late")) << found;
}

const auto backend_name = [](const auto& instance) {
  return std::string(to_string(instance.param));
};
const auto waiting_name = [](const auto& instance) {
  return fmt::format("{}_{}", to_string(std::get<0>(instance.param)),
                     std::get<1>(instance.param) ? "send" : "receive");
};

INSTANTIATE_TEST_SUITE_P(by, MessagesProcesses, testing::Values(Backend::shm, Backend::network),
                         backend_name);
INSTANTIATE_TEST_SUITE_P(by, WaitingMessages,
                         testing::Combine(testing::Values(Backend::shm, Backend::network),
                                          testing::Bool()),
                         waiting_name);

}  // namespace
}  // namespace troupe
