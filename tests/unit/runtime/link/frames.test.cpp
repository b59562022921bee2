#include "runtime/link/frames.hpp"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

namespace troupe {
namespace {

std::vector<std::byte> some_bytes(std::size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

/// Takes `most` bytes at a time from the queue.
std::vector<std::byte> drain(FrameQueue& queue, std::size_t most) {
  std::vector<std::byte> stream;
  for (auto front = queue.front(); !front.empty(); front = queue.front()) {
    const auto part = front.first(std::min(most, front.size()));
    stream.insert(stream.end(), part.begin(), part.end());
    queue.sent(part.size());
  }
  return stream;
}

TEST(Frames, come_out_as_they_went_in_however_the_stream_is_cut) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<std::byte>> frames;
    FrameQueue queue;
    for (int i = 0; i < 12; ++i) {
      const std::size_t sizes[] = {0,
                                   1,
                                   random() % 300,
                                   FrameQueue::piece_bytes - 4,
                                   FrameQueue::piece_bytes - 3,
                                   random() % 100'000};
      frames.push_back(some_bytes(sizes[random() % 6], i));
      queue.push(LinkFrame(frames.back()));
    }
    const auto stream = drain(queue, 1 + random() % 40'000);
    EXPECT_TRUE(queue.empty());
    FrameReader reader(1 << 20);
    std::vector<std::vector<std::byte>> read;
    std::size_t at = 0;
    while (at < stream.size()) {
      const auto room = reader.room();
      ASSERT_FALSE(room.empty());
      const std::size_t count =
          std::min({room.size(), stream.size() - at, std::size_t{1} + random() % 20'000});
      std::memcpy(room.data(), stream.data() + at, count);
      at += count;
      ASSERT_TRUE(reader.filled(count).ok());
      std::vector<std::byte> frame;
      if (reader.take(frame)) read.push_back(std::move(frame));
    }
    EXPECT_EQ(read, frames);
  }
}

TEST(FrameQueue, gives_the_same_bytes_again_until_they_are_sent) {
  FrameQueue queue;
  queue.push(LinkFrame(some_bytes(10, 1)));
  const auto first = queue.front();
  queue.push(LinkFrame(some_bytes(10, 2)));
  EXPECT_EQ(queue.front().data(), first.data());
  EXPECT_EQ(queue.front().size(), first.size());
  queue.sent(5);
  EXPECT_EQ(queue.front().size(), first.size() - 5);
  EXPECT_EQ(queue.queued_bytes(), 2 * 14U - 5);
}

TEST(FrameQueue, copies_only_the_first_piece_of_a_large_frame) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(some_bytes(1 << 20, 3));
  FrameQueue queue;
  queue.push(LinkFrame(*owner, owner));
  EXPECT_EQ(queue.front().size(), FrameQueue::piece_bytes);
  queue.sent(FrameQueue::piece_bytes);
  EXPECT_EQ(queue.front().data(), owner->data() + FrameQueue::piece_bytes - 4);
  EXPECT_EQ(owner.use_count(), 2);
  queue.sent(queue.front().size());
  EXPECT_EQ(owner.use_count(), 1) << "the memory is released once it is sent";
}

TEST(FrameQueue, joins_the_head_and_the_body_of_a_frame) {
  for (const std::size_t head : {0U, 1U, 40U, 20'000U}) {
    for (const std::size_t body : {0U, 1U, 16'384U, 100'000U}) {
      auto whole = some_bytes(head, 4);
      const auto borrowed = some_bytes(body, 5);
      FrameQueue queue;
      queue.push(LinkFrame(whole, borrowed));
      queue.push(LinkFrame(some_bytes(3, 6)));
      whole.insert(whole.end(), borrowed.begin(), borrowed.end());
      FrameQueue expected;
      expected.push(LinkFrame(std::move(whole)));
      expected.push(LinkFrame(some_bytes(3, 6)));
      EXPECT_EQ(queue.queued_bytes(), expected.queued_bytes());
      EXPECT_EQ(drain(queue, 1000), drain(expected, 1000)) << head << " + " << body;
      EXPECT_TRUE(queue.empty());
    }
  }
}

TEST(FrameQueue, sends_what_was_borrowed_although_it_changes_once_it_is_copied) {
  auto borrowed = some_bytes(100'000, 7);
  auto whole = some_bytes(40, 8);
  FrameQueue queue, expected;
  queue.push(LinkFrame(whole, borrowed));
  whole.insert(whole.end(), borrowed.begin(), borrowed.end());
  expected.push(LinkFrame(whole));
  for (FrameQueue* each : {&queue, &expected}) {
    (void)each->front();
    each->sent(FrameQueue::piece_bytes);
    (void)each->front();
    each->sent(1000);  // in the middle of the body
  }
  queue.copy_borrowed();
  borrowed.assign(borrowed.size(), std::byte{0});
  EXPECT_EQ(drain(queue, 1000), drain(expected, 1000));
}

TEST(FrameReader, refuses_a_frame_above_the_limit_before_it_takes_memory) {
  FrameReader reader(1000);
  const std::uint32_t length = 1001;
  ASSERT_EQ(reader.room().size(), sizeof length);
  std::memcpy(reader.room().data(), &length, sizeof length);
  const auto filled = reader.filled(sizeof length);
  ASSERT_FALSE(filled.ok());
  EXPECT_EQ(filled.error().code, ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace troupe
