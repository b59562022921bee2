#include "runtime/call/answer_table.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr std::size_t max_callers = 4;
constexpr CallerId lives = 1;

using Verdict = AnswerTable::Verdict;

/// A table, and what its callers do, each on its first link.
class Callers {
 public:
  void come(CallerId caller) { EXPECT_TRUE(table_.begin_link(caller, 1, 0).has_value()); }
  Verdict call(CallerId caller) {
    return table_.begin_call(caller, 1, 1, ++calls_, nullptr, [] { return nullptr; }).verdict;
  }
  void end(CallerId caller) { table_.end_link(caller, 1); }
  void give_up(CallerId caller) { table_.give_up(caller, 1); }

 private:
  AnswerTable table_{1 << 20, max_callers};
  CallId calls_ = 0;
};

TEST(AnswerTable, keeps_a_caller_with_a_link_however_many_come_and_go) {
  Callers callers;
  callers.come(lives);
  for (CallerId id = 2; id < 100; ++id) {
    callers.come(id);
    EXPECT_EQ(callers.call(id), Verdict::fresh);
    callers.end(id);
  }
  EXPECT_EQ(callers.call(lives), Verdict::fresh);
}

TEST(AnswerTable, forgets_those_that_are_given_up_before_others_without_a_link) {
  Callers callers;
  for (CallerId id = 1; id <= max_callers; ++id) callers.come(id);
  callers.end(2);
  callers.end(3);
  callers.give_up(3);
  callers.come(10);
  EXPECT_EQ(callers.call(3), Verdict::stale) << "it is forgotten";
  EXPECT_EQ(callers.call(2), Verdict::fresh);
  callers.come(11);
  EXPECT_EQ(callers.call(2), Verdict::stale) << "of the rest, it alone has no link";
  EXPECT_EQ(callers.call(1), Verdict::fresh);
}

TEST(AnswerTable, forgets_the_one_that_has_called_least_recently_if_all_have_links) {
  Callers callers;
  for (CallerId id = 1; id <= max_callers; ++id) callers.come(id);
  EXPECT_EQ(callers.call(1), Verdict::fresh);
  callers.come(10);
  EXPECT_EQ(callers.call(2), Verdict::stale);
  EXPECT_EQ(callers.call(1), Verdict::fresh);
}

}  // namespace
}  // namespace troupe
