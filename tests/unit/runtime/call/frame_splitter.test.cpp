#include "runtime/call/frame_splitter.hpp"

#include <gtest/gtest.h>

namespace troupe {

Bytes framed(const Bytes& body) {
  Bytes bytes = encode(static_cast<std::uint32_t>(body.size()));
  bytes.append(body);
  return bytes;
}

TEST(FrameSplitter, cuts_a_stream_however_it_arrives) {
  Bytes stream;
  std::vector<Bytes> sent;
  for (const std::size_t size : {1, 2, 3, 64, 65, 200, 1}) {
    sent.emplace_back(size, std::byte{static_cast<unsigned char>(size)});
    const Bytes frame = framed(sent.back());
    stream.append(frame);
  }
  for (std::size_t most = 1; most <= 70; ++most) {
    FrameSplitter splitter(1000);
    std::vector<Bytes> received;
    std::array<std::byte, 64> scratch;
    for (std::size_t at = 0; at < stream.size();) {
      const auto room = splitter.room(scratch);
      const std::size_t size = std::min({most, room.size(), stream.size() - at});
      std::memcpy(room.data(), stream.data() + at, size);
      const auto taken = splitter.consume(room.first(size), [&](Bytes& frame) -> Result<void> {
        received.push_back(std::move(frame));
        return {};
      });
      ASSERT_TRUE(taken.ok()) << taken.error().message;
      at += size;
    }
    EXPECT_EQ(received, sent) << "in pieces of at most " << most;
  }
}

TEST(FrameSplitter, refuses_lengths_out_of_bounds_and_lets_a_frame_raise_the_limit) {
  const auto accept = [](Bytes&) -> Result<void> { return {}; };
  for (const std::uint32_t length : {0U, 11U, 0xffffffffU}) {
    EXPECT_EQ(FrameSplitter(10).consume(encode(length), accept).error().code,
              ErrorCode::corrupt_data);
  }
  FrameSplitter splitter(10);
  Bytes two = framed(Bytes(10));
  const Bytes larger = framed(Bytes(11));
  two.append(larger);
  int frames = 0;
  const auto taken = splitter.consume(two, [&](Bytes&) -> Result<void> {
    splitter.set_limit(11);
    ++frames;
    return {};
  });
  EXPECT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_EQ(frames, 2);
}

}  // namespace troupe
