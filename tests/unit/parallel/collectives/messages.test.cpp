#include <future>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/collectives/self_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"

namespace troupe {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t room = 4096;

Tensor view(const Bytes& bytes) {
  return {const_cast<std::uint8_t*>(bytes.data()),
          DType::u8,
          {static_cast<std::int64_t>(bytes.size())}};
}

Bytes message(std::size_t bytes, int number) {
  Bytes content(bytes);
  std::iota(content.begin(), content.end(), static_cast<std::uint8_t>(number * 31));
  return content;
}

std::vector<std::unique_ptr<ShmCollectives>> make_group(int ranks) {
  auto region = SharedMemory::create(shm_collectives_bytes(ranks, 4096, room));
  std::vector<std::unique_ptr<ShmCollectives>> group;
  for (int rank = 0; rank < ranks; ++rank) {
    auto fd = region->duplicate_fd();
    auto mapped = SharedMemory::map(std::move(*fd));
    auto attached = ShmCollectives::attach(std::move(*mapped), rank, ranks, room);
    EXPECT_TRUE(attached.ok());
    group.push_back(std::move(*attached));
    group.back()->set_timeout(std::chrono::seconds(20));
  }
  return group;
}

ErrorCode code_of(const Result<void>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? ErrorCode::internal : result.error().code;
}

void expect_received(Collectives& receiver, int from, const Bytes& expected) {
  Bytes found(expected.size(), 0xee);
  const auto done = receiver.receive(view(found), from);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(found, expected);
}

TEST(ShmMailboxes, messages_that_fit_are_sent_without_a_receiver_and_come_in_order) {
  const auto group = make_group(3);
  const std::size_t sizes[] = {0, 1, 7, 8, 9, 1000, 0, 2047};
  for (int i = 0; i < std::ssize(sizes); ++i) {
    ASSERT_TRUE(group[2]->send(view(message(sizes[i], i)), 0).ok()) << sizes[i] << " bytes";
    ASSERT_TRUE(group[1]->send(view(message(sizes[i], i + 1)), 0).ok()) << sizes[i] << " bytes";
  }
  for (int i = 0; i < std::ssize(sizes); ++i) {
    expect_received(*group[0], 1, message(sizes[i], i + 1));
    expect_received(*group[0], 2, message(sizes[i], i));
  }
}

TEST(ShmMailboxes, messages_larger_than_the_room_stream_through_it) {
  const auto group = make_group(2);
  const std::size_t sizes[] = {room - 8, room, room + 1, 10 * room + 3, 1, 300'001};
  auto sent = std::async(std::launch::async, [&]() -> Result<void> {
    for (int i = 0; i < std::ssize(sizes); ++i) {
      TROUPE_CHECK(group[0]->send(view(message(sizes[i], i)), 1));
    }
    return {};
  });
  for (int i = 0; i < std::ssize(sizes); ++i) {
    expect_received(*group[1], 0, message(sizes[i], i));
  }
  EXPECT_TRUE(sent.get().ok());
}

TEST(ShmMailboxes, both_directions_and_collectives_between_them_do_not_mix) {
  const auto group = make_group(2);
  const auto run = [&](int rank) {
    for (int i = 0; i < 200; ++i) {
      const auto bytes = static_cast<std::size_t>(i * 13 % 2000);
      if (!group[rank]->send(view(message(bytes, i + rank)), 1 - rank).ok()) return false;
      if (i % 3 == 0 && !group[rank]->barrier().ok()) return false;
      Bytes found(bytes);
      if (!group[rank]->receive(view(found), 1 - rank).ok()) return false;
      if (found != message(bytes, i + 1 - rank)) return false;
    }
    return true;
  };
  auto other = std::async(std::launch::async, [&] { return run(1); });
  EXPECT_TRUE(run(0));
  EXPECT_TRUE(other.get());
}

TEST(ShmMailboxes, another_length_than_was_sent_is_refused_and_ends_the_group) {
  const auto group = make_group(2);
  const Bytes eight(8);
  const Bytes nine(9);
  ASSERT_TRUE(group[0]->send(view(eight), 1).ok());
  const auto done = group[1]->receive(view(nine), 0);
  ASSERT_EQ(code_of(done), ErrorCode::invalid_argument);
  EXPECT_NE(done.error().message.find("rank 0 sent 8 bytes to rank 1, which expects 9"),
            std::string::npos)
      << done.error().message;
  EXPECT_EQ(code_of(group[0]->send(view(eight), 1)), ErrorCode::cancelled);
  EXPECT_EQ(code_of(group[1]->barrier()), ErrorCode::cancelled);
}

TEST(ShmMailboxes, timeout_names_the_rank_that_did_not_come) {
  for (const bool sends : {true, false}) {
    const auto group = make_group(3);
    group[1]->set_timeout(std::chrono::milliseconds(3));
    const Bytes large(2 * room);
    const auto done = sends ? group[1]->send(view(large), 2) : group[1]->receive(view(large), 2);
    ASSERT_EQ(code_of(done), ErrorCode::timed_out);
    EXPECT_TRUE(done.error().message.ends_with("rank 2 did not come within 3 ms"))
        << done.error().message;
    EXPECT_EQ(code_of(group[0]->barrier()), ErrorCode::cancelled);
  }
}

TEST(ShmMailboxes, abort_ends_the_wait_for_room_and_for_a_message) {
  for (const bool sends : {true, false}) {
    const auto group = make_group(3);
    const Bytes large(2 * room);
    auto waiting = std::async(std::launch::async, [&] {
      return sends ? group[1]->send(view(large), 2) : group[1]->receive(view(large), 2);
    });
    group[0]->abort();
    EXPECT_EQ(code_of(waiting.get()), ErrorCode::cancelled);
    EXPECT_EQ(code_of(group[2]->receive(view(large), 1)), ErrorCode::cancelled);
  }
}

TEST(ShmMailboxes, messages_to_oneself_or_nobody_are_refused) {
  SelfCollectives self;
  EXPECT_EQ(code_of(self.send(view(Bytes(1)), 0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(self.receive(view(Bytes(1)), 1)), ErrorCode::invalid_argument);
  for (const int other : {1, 2, -1}) {
    EXPECT_EQ(code_of(make_group(2)[1]->send(view(Bytes(1)), other)), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of(make_group(2)[1]->receive(view(Bytes(1)), other)),
              ErrorCode::invalid_argument);
  }
}

TEST(ShmMailboxes, ranks_that_disagree_on_the_room_are_refused) {
  auto region = SharedMemory::create(shm_collectives_bytes(2, 1u << 20, room));
  for (const std::size_t mailbox_bytes : {room, 2 * room}) {
    auto fd = region->duplicate_fd();
    auto mapped = SharedMemory::map(std::move(*fd));
    const int rank = mailbox_bytes == room ? 0 : 1;
    const auto attached = ShmCollectives::attach(std::move(*mapped), rank, 2, mailbox_bytes);
    EXPECT_EQ(attached.ok(), mailbox_bytes == room);
  }
}

}  // namespace
}  // namespace troupe
