#include "runtime/call/bytes.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAreArray;

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

/// Empty, small, and on both sides of what is held without memory.
constexpr std::size_t sizes[] = {0, 1, 38, 39, 40, 41, 1000};

TEST(Bytes, hold_what_is_appended_in_pieces) {
  for (const std::size_t size : sizes) {
    const auto expected = counted(size);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
      Bytes bytes;
      for (std::size_t at = 0; at < size; at += piece) {
        bytes.append(std::span(expected).subspan(at, std::min(piece, size - at)));
      }
      EXPECT_THAT(bytes, ElementsAreArray(expected)) << size << " bytes by " << piece;
    }
    Bytes pushed;
    for (const std::byte one : expected) pushed.push_back(one);
    EXPECT_THAT(pushed, ElementsAreArray(expected)) << size;
  }
}

TEST(Bytes, are_moved_and_copied_between_all_sizes) {
  for (const std::size_t from : sizes) {
    for (const std::size_t to : sizes) {
      Bytes source(counted(from)), target(counted(to));
      target = source;
      EXPECT_EQ(target, source) << from << " over " << to;
      Bytes other(counted(to));
      other = std::move(source);
      EXPECT_EQ(other, target) << from << " over " << to;
      EXPECT_TRUE(source.empty());  // NOLINT: what a move leaves is specified
      source = target;              // and can be used again
      EXPECT_EQ(source, target);
    }
  }
}

TEST(Bytes, take_and_give_the_memory_of_a_vector) {
  auto vector = counted(1000);
  const std::byte* const memory = vector.data();
  Bytes bytes(std::move(vector));
  EXPECT_EQ(bytes.data(), memory);
  const Bytes moved = std::move(bytes);
  EXPECT_EQ(moved.data(), memory);
  const std::vector<std::byte> copy = moved;
  EXPECT_NE(copy.data(), memory);
  EXPECT_EQ(copy, counted(1000));
  Bytes last = moved;
  const std::byte* const own = last.data();
  const std::vector<std::byte> given = std::move(last);
  EXPECT_EQ(given.data(), own);
  const std::vector<std::byte> small = Bytes(counted(5));
  EXPECT_EQ(small, counted(5));
}

TEST(Bytes, are_zero_where_they_grow) {
  for (const std::size_t size : sizes) {
    Bytes bytes(counted(20));
    bytes.resize(10);
    bytes.resize(10 + size);
    auto expected = counted(10);
    expected.resize(10 + size);
    EXPECT_THAT(bytes, ElementsAreArray(expected)) << size;
  }
}

TEST(Bytes, hold_small_values_in_place) {
  const Bytes small(counted(Bytes::small_capacity));
  Bytes copy = small;
  const auto* const object = reinterpret_cast<const std::byte*>(&copy);
  EXPECT_GE(copy.data(), object);
  EXPECT_LT(copy.data(), object + sizeof copy);
  constexpr std::string_view text = "of characters";
  EXPECT_EQ(Bytes(text.begin(), text.end()).size(), text.size());
}

}  // namespace
}  // namespace troupe
