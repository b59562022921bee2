#include "launcher/batch/output/line_order.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(LineOrder, gives_lines_in_the_order_of_the_input_whatever_order_they_come_in) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    LineOrder order;
    std::vector<std::size_t> lines;
    for (std::size_t line = 1; lines.size() < 50; line += 1 + random() % 3) lines.push_back(line);
    for (const std::size_t line : lines) order.expect(line);
    std::vector<std::size_t> coming = lines;
    std::shuffle(coming.begin(), coming.end(), random);
    std::vector<std::string> given;
    for (const std::size_t line : coming) {
      order.put({line, std::to_string(line)});
      while (auto taken = order.take()) given.push_back(taken->text);
    }
    ASSERT_EQ(given.size(), lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(given[i], std::to_string(lines[i]));
  }
}

TEST(LineOrder, gives_a_line_at_once_when_those_before_it_are_out) {
  LineOrder order;
  order.expect(3);
  order.expect(8);
  order.put({8, "eight"});
  EXPECT_FALSE(order.take().has_value());
  order.put({3, "three"});
  EXPECT_EQ(order.take()->text, "three");
  EXPECT_EQ(order.take()->text, "eight");
  EXPECT_FALSE(order.take().has_value());
}

TEST(LineOrder, has_no_room_while_too_many_bytes_wait) {
  LineOrder order;
  order.expect(1);
  order.expect(2);
  EXPECT_TRUE(order.has_room());
  order.put({2, std::string(std::size_t{65} << 20, 'x')});
  EXPECT_FALSE(order.has_room());
  order.put({1, ""});
  while (order.take()) {
  }
  EXPECT_TRUE(order.has_room());
}

}  // namespace
}  // namespace troupe
