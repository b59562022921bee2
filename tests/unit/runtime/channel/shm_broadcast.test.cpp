#include "runtime/channel/shm_broadcast.hpp"

#include <algorithm>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> pattern(std::size_t bytes, unsigned salt) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 31 + salt);
  return result;
}

class ShmBroadcast : public testing::Test {
 protected:
  void make(int readers, std::size_t ring_bytes) {
    readers_ = readers;
    auto created = SharedMemory::create(shm_broadcast_bytes(readers, ring_bytes));
    ASSERT_TRUE(created.ok());
    region_ = std::move(*created);
  }
  SharedMemory map_again() {
    auto fd = region_.duplicate_fd();
    auto mapped = SharedMemory::map(std::move(*fd));
    return std::move(*mapped);
  }
  ShmBroadcastWriter writer() {
    auto attached = ShmBroadcastWriter::attach(map_again(), readers_);
    EXPECT_TRUE(attached.ok()) << attached.error().message;
    return std::move(*attached);
  }
  ShmBroadcastReader reader(int index) {
    auto attached = ShmBroadcastReader::attach(map_again(), readers_, index);
    EXPECT_TRUE(attached.ok()) << attached.error().message;
    return std::move(*attached);
  }

  int readers_ = 0;
  SharedMemory region_;
};

TEST_F(ShmBroadcast, every_reader_gets_every_message_in_order_over_many_turns_of_the_ring) {
  constexpr int readers = 3;
  constexpr unsigned messages = 3'000;
  constexpr unsigned seed = 5;
  make(readers, 4096);
  ShmBroadcastWriter out = writer();
  const std::size_t limit = out.max_message_bytes();
  const auto size_of_message = [&](std::mt19937& random) {
    const auto draw = random();
    return draw % 10 == 0 ? limit - draw / 16 % 9 : draw / 16 % 300;
  };
  std::vector<std::future<std::string>> all;
  for (int index = 0; index < readers; ++index) {
    all.push_back(std::async(std::launch::async, [&, in = reader(index)]() mutable -> std::string {
      std::mt19937 random(seed);
      for (unsigned i = 0; i < messages; ++i) {
        const auto expected = pattern(size_of_message(random), i);
        const auto found = in.receive(deadline_in(20s));
        if (!found) return found.error().message;
        if (reinterpret_cast<std::uintptr_t>(found->data()) % 8 != 0) return "not aligned";
        if (!std::ranges::equal(*found, expected)) {
          return fmt::format("seed {}, message {}: expected {} bytes, found {} or other content",
                             seed, i, expected.size(), found->size());
        }
      }
      return {};
    }));
  }
  std::mt19937 random(seed);
  for (unsigned i = 0; i < messages; ++i) {
    const auto sent = out.send(pattern(size_of_message(random), i), deadline_in(20s));
    ASSERT_TRUE(sent.ok()) << "message " << i << ": " << sent.error().message;
  }
  for (auto& complaint : all) EXPECT_EQ(complaint.get(), "");
}

TEST_F(ShmBroadcast, writer_waits_for_the_slowest_reader) {
  make(2, 4096);
  ShmBroadcastWriter out = writer();
  ShmBroadcastReader quick = reader(0);
  ShmBroadcastReader slow = reader(1);
  const auto message = pattern(1'000, 0);
  int sent = 0;
  while (out.send(message, deadline_in(1ms)).ok()) {
    ++sent;
    ASSERT_TRUE(quick.receive(deadline_in(1s)).ok());
    ASSERT_LE(sent, 4);
  }
  EXPECT_EQ(sent, 4);
  // A message is released by the next receive, not by its own.
  ASSERT_TRUE(slow.receive(deadline_in(1s)).ok());
  EXPECT_EQ(out.send(message, deadline_in(1ms)).error().code, ErrorCode::timed_out);
  ASSERT_TRUE(slow.receive(deadline_in(1s)).ok());
  ASSERT_TRUE(slow.receive(deadline_in(1s)).ok());
  EXPECT_TRUE(out.send(message, deadline_in(1s)).ok());
}

TEST_F(ShmBroadcast, message_larger_than_half_the_ring_is_refused) {
  make(1, 8192);
  ShmBroadcastWriter out = writer();
  ShmBroadcastReader in = reader(0);
  EXPECT_EQ(out.max_message_bytes(), 8192u / 2 - 8);
  EXPECT_EQ(out.send(pattern(out.max_message_bytes() + 1, 0), deadline_in(1s)).error().code,
            ErrorCode::invalid_argument);
  EXPECT_TRUE(out.send(pattern(out.max_message_bytes(), 0), deadline_in(1s)).ok());
  EXPECT_TRUE(in.receive(deadline_in(1s)).ok());
}

TEST_F(ShmBroadcast, abort_by_one_end_cancels_all_ends) {
  make(2, 4096);
  ShmBroadcastWriter out = writer();
  ShmBroadcastReader first = reader(0);
  ShmBroadcastReader second = reader(1);
  auto waiting = std::async(std::launch::async, [&] { return first.receive(deadline_in(10s)); });
  second.abort();
  const auto ended = waiting.get();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::cancelled);
  EXPECT_EQ(out.send(pattern(8, 0), deadline_in(10s)).error().code, ErrorCode::cancelled);
}

TEST_F(ShmBroadcast, interrupt_cancels_one_receive_of_one_reader) {
  make(2, 4096);
  ShmBroadcastWriter out = writer();
  ShmBroadcastReader first = reader(0);
  ShmBroadcastReader second = reader(1);
  auto waiting = std::async(std::launch::async, [&] { return first.receive(deadline_in(10s)); });
  first.interrupt();
  const auto ended = waiting.get();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::cancelled);
  ASSERT_TRUE(out.send(pattern(8, 0), deadline_in(1s)).ok());
  EXPECT_TRUE(first.receive(deadline_in(1s)).ok());
  EXPECT_TRUE(second.receive(deadline_in(1s)).ok());
}

TEST_F(ShmBroadcast, receive_times_out_without_a_message) {
  make(1, 4096);
  ShmBroadcastReader in = reader(0);
  const auto nothing = in.receive(deadline_in(2ms));
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::timed_out);
}

TEST_F(ShmBroadcast, places_are_taken_once_and_counts_must_agree) {
  make(2, 4096);
  ShmBroadcastWriter out = writer();
  ShmBroadcastReader in = reader(1);
  EXPECT_EQ(ShmBroadcastWriter::attach(map_again(), 2).error().code, ErrorCode::already_exists);
  EXPECT_EQ(ShmBroadcastReader::attach(map_again(), 2, 1).error().code, ErrorCode::already_exists);
  EXPECT_EQ(ShmBroadcastReader::attach(map_again(), 3, 0).error().code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(ShmBroadcastReader::attach(map_again(), 2, 2).error().code,
            ErrorCode::invalid_argument);
  auto tiny = SharedMemory::create(4096);
  EXPECT_EQ(ShmBroadcastWriter::attach(std::move(*tiny), 1).error().code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace troupe
