#include "runtime/process/child_channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace troupe {

TEST(ChildChannel, keeps_only_what_is_not_handed_out_of_a_stream_that_never_pauses) {
  auto ends = ChildChannel::make_pair();
  ASSERT_TRUE(ends.ok()) << ends.error().message;
  ChildChannel reader(std::move(ends->second));
  const int writer = ends->first.get();
  // Whole messages of 1,000 bytes, each followed by a part of the next one before it is read.
  std::vector<std::byte> frame(8 + 1000);
  const std::uint32_t length = 1000;
  std::memcpy(frame.data(), &length, sizeof length);
  constexpr std::size_t part = 100;
  ASSERT_EQ(::send(writer, frame.data(), part, 0), static_cast<ssize_t>(part));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(::send(writer, frame.data() + part, frame.size() - part, 0),
              static_cast<ssize_t>(frame.size() - part));
    ASSERT_EQ(::send(writer, frame.data(), part, 0), static_cast<ssize_t>(part));
    const auto messages = reader.receive();
    ASSERT_TRUE(messages.ok());
    ASSERT_EQ(messages->size(), 1U);
    ASSERT_EQ(reader.unread_bytes(), part) << "after message " << i;
  }
}

}  // namespace troupe
