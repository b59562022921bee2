#include "runtime/base/intrusive_list.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

struct Item {
  int number = 0;
  ListHook<Item> hook{};
};
using Items = IntrusiveList<Item, &Item::hook>;

std::vector<int> numbers(const Items& items) {
  std::vector<int> all;
  for (const Item* one = items.first(); one != nullptr; one = Items::after(*one)) {
    all.push_back(one->number);
  }
  return all;
}

TEST(IntrusiveList, has_what_was_added_last_first) {
  Items items;
  EXPECT_TRUE(items.empty());
  Item one{1}, two{2}, three{3};
  for (Item* item : {&one, &two, &three}) items.push_front(*item);
  EXPECT_EQ(numbers(items), (std::vector{3, 2, 1}));
}

TEST(IntrusiveList, lets_each_leave_in_any_order_and_come_again) {
  Items items, others;
  Item one{1}, two{2}, three{3};
  for (Item* item : {&one, &two, &three}) items.push_front(*item);
  Items::remove(two);
  EXPECT_FALSE(two.hook.is_listed());
  EXPECT_EQ(numbers(items), (std::vector{3, 1}));
  Items::remove(two);  // is in none
  Items::remove(three);
  EXPECT_EQ(numbers(items), (std::vector{1}));
  others.push_front(two);
  others.push_front(three);
  Items::remove(one);
  EXPECT_TRUE(items.empty());
  EXPECT_EQ(numbers(others), (std::vector{3, 2}));
}

TEST(IntrusiveList, has_the_object_and_not_what_that_is_moved_to) {
  Items items;
  Item one{1};
  items.push_front(one);
  const Item moved = std::move(one);
  EXPECT_FALSE(moved.hook.is_listed());
  EXPECT_TRUE(one.hook.is_listed());
  EXPECT_EQ(numbers(items), (std::vector{1}));
}

}  // namespace
}  // namespace troupe
