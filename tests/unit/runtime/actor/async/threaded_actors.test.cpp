#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/actor/async/cell_host.hpp"

namespace troupe::test {
namespace {

/// Waits in its methods until the gate answers.
class Store {
 public:
  Store(ActorContext& context, std::shared_ptr<Notes> notes, ActorHandle<Gated> gate)
      : context_(context), notes_(std::move(notes)), gate_(std::move(gate)) {}
  ~Store() { notes_->add("end of actor"); }

  Result<int> wait() {
    notes_->add("waits");
    return gate_.call<&Gated::pass>().get(limit);
  }
  Result<int> read(int number) {
    notes_->add(fmt::format("read {}", number));
    return gate_.call<&Gated::pass>().get(limit);
  }
  int size() { return 5; }
  int note(int number) {
    notes_->add(std::to_string(number));
    return number;
  }
  void leave() { context_.exit("enough"); }

  static constexpr std::string_view actor_type = "Store";
  using Methods =
      troupe::Methods<&Store::wait, &Store::read, &Store::size, &Store::note, &Store::leave>;
  using ConcurrencyGroups = troupe::ConcurrencyGroups<troupe::Group<"io", 2, &Store::read>,
                                                      troupe::Group<"stats", 1, &Store::size>>;

 private:
  ActorContext& context_;
  const std::shared_ptr<Notes> notes_;
  const ActorHandle<Gated> gate_;
};

/// Without groups.
class Plain {
 public:
  Plain(ActorContext& /*context*/, std::shared_ptr<Notes> notes, ActorHandle<Gated> gate)
      : notes_(std::move(notes)), gate_(std::move(gate)) {}
  Result<int> wait(int number) {
    notes_->add(std::to_string(number));
    return gate_.call<&Gated::pass>().get(limit);
  }
  static constexpr std::string_view actor_type = "Plain";
  using Methods = troupe::Methods<&Plain::wait>;

 private:
  const std::shared_ptr<Notes> notes_;
  const ActorHandle<Gated> gate_;
};

/// A class with coroutines, in groups.
class AsyncStore {
 public:
  AsyncStore(ActorContext& /*context*/, std::shared_ptr<Notes> notes, ActorHandle<Gated> gate)
      : notes_(std::move(notes)), gate_(std::move(gate)) {}
  Async<int> read(int number) {
    notes_->add(fmt::format("read {}", number));
    co_return co_await gate_.call<&Gated::pass>();
  }
  int size() { return 5; }
  static constexpr std::string_view actor_type = "AsyncStore";
  using Methods = troupe::Methods<&AsyncStore::read, &AsyncStore::size>;
  using ConcurrencyGroups = troupe::ConcurrencyGroups<troupe::Group<"io", 2, &AsyncStore::read>>;

 private:
  const std::shared_ptr<Notes> notes_;
  const ActorHandle<Gated> gate_;
};

class ThreadedActors : public ::testing::TestWithParam<bool> {
 protected:
  template <class A>
  CellHost::Hosted<A> start(int max_concurrency) {
    return host_.start<A>({.dedicated_thread = GetParam(), .max_concurrency = max_concurrency},
                          notes_, add_gate(host_, gate_, 1000));
  }

  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  CellHost host_;
};

TEST_P(ThreadedActors, run_as_many_methods_at_once_as_they_may_and_begin_them_in_order) {
  const auto actor = start<Plain>(3);
  std::vector<Future<int>> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(actor.call<&Plain::wait>(i));
  ASSERT_TRUE(gate_->wait_for_calls(3));
  EXPECT_EQ(notes_->count("3"), 0U);
  for (int i = 0; i < 6; ++i) {
    gate_->answer(i, i);
    if (i + 3 < 6) {
      ASSERT_TRUE(gate_->wait_for_calls(i + 4));
    }
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get(limit).ok());
  const auto notes = notes_->all();
  ASSERT_EQ(notes.size(), 6U);
  EXPECT_THAT(std::vector(notes.begin(), notes.begin() + 3),
              ::testing::UnorderedElementsAre("0", "1", "2"));
  EXPECT_THAT(std::vector(notes.begin() + 3, notes.end()), ::testing::ElementsAre("3", "4", "5"));
}

TEST_P(ThreadedActors, have_groups_that_do_not_wait_for_each_other) {
  const auto actor = start<Store>(0);
  auto wait = actor.call<&Store::wait>();
  auto second_wait = actor.call<&Store::wait>();
  std::vector<Future<int>> reads;
  ASSERT_TRUE(gate_->wait_for_calls(1));
  for (int i = 0; i < 3; ++i) reads.push_back(actor.call<&Store::read>(i));
  ASSERT_TRUE(gate_->wait_for_calls(3));
  EXPECT_EQ(must(actor.call<&Store::size>().get(limit)), 5);
  EXPECT_EQ(notes_->count("waits"), 1U) << "the default group has one place";
  EXPECT_EQ(notes_->count("read 2"), 0U) << "the group of reads has two";
  gate_->answer(0, 1);
  EXPECT_EQ(must(wait.get(limit)), 1);
  ASSERT_TRUE(gate_->wait_for_calls(4));
  for (int i = 1; i < 4; ++i) gate_->answer(i, i);
  ASSERT_TRUE(gate_->wait_for_calls(5));
  gate_->answer(4, 4);
  EXPECT_TRUE(second_wait.get(limit).ok());
  for (auto& read : reads) EXPECT_TRUE(read.get(limit).ok());
}

TEST_P(ThreadedActors, keep_the_order_of_calls_in_a_group_of_one) {
  const auto actor = start<Store>(1);
  std::vector<Future<int>> answers;
  for (int i = 0; i < 300; ++i) answers.push_back(actor.call<&Store::note>(i));
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(must(answers[i].get(limit)), i);
    expected.push_back(std::to_string(i));
  }
  EXPECT_EQ(notes_->all(), expected);
}

TEST_P(ThreadedActors, end_when_their_running_methods_have_and_refuse_those_that_have_not_begun) {
  const auto actor = start<Store>(2);
  auto first = actor.call<&Store::wait>();
  auto second = actor.call<&Store::wait>();
  auto never = actor.call<&Store::wait>();
  ASSERT_TRUE(gate_->wait_for_calls(2));
  actor.cell->stop();
  EXPECT_FALSE(never.get(limit).ok());
  EXPECT_EQ(notes_->count("end of actor"), 0U);
  EXPECT_FALSE(actor.cell->wait_until_over(0ms));
  gate_->answer(0, 1);
  EXPECT_EQ(must(first.get(limit)), 1);
  EXPECT_EQ(notes_->count("end of actor"), 0U);
  gate_->answer(1, 2);
  EXPECT_EQ(must(second.get(limit)), 2);
  EXPECT_TRUE(actor.cell->wait_until_over(limit));
  EXPECT_EQ(notes_->count("end of actor"), 1U);
  EXPECT_FALSE(actor.call<&Store::size>().get(limit).ok());
}

TEST_P(ThreadedActors, end_while_callers_go_on_calling) {
  for (int round = 0; round < 20; ++round) {
    const auto actor = start<Store>(4);
    std::atomic<bool> has_ended = false;
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&] {
        while (!has_ended) {
          auto size = actor.call<&Store::size>();
          auto note = actor.call<&Store::note>(1);
          const auto answer = size.get(limit);
          EXPECT_TRUE(answer.ok() || answer.error().code != ErrorCode::timed_out);
          (void)note.get(limit);
        }
      });
    }
    ASSERT_TRUE(notes_->wait_for("1", static_cast<std::size_t>(round) + 1));
    actor.end();
    has_ended = true;
    for (auto& caller : callers) caller.join();
  }
}

TEST_P(ThreadedActors, of_a_class_with_coroutines_have_groups_too) {
  const auto actor = start<AsyncStore>(0);
  std::vector<Future<int>> reads;
  for (int i = 0; i < 3; ++i) reads.push_back(actor.call<&AsyncStore::read>(i));
  ASSERT_TRUE(gate_->wait_for_calls(2));
  EXPECT_EQ(must(actor.call<&AsyncStore::size>().get(limit)), 5);
  EXPECT_EQ(notes_->count("read 2"), 0U);
  gate_->answer(1, 1);
  ASSERT_TRUE(gate_->wait_for_calls(3));
  gate_->answer(0, 0);
  gate_->answer(2, 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(must(reads[i].get(limit)), i);
}

INSTANTIATE_TEST_SUITE_P(Of, ThreadedActors, ::testing::Bool(), [](const auto& info) {
  return info.param ? "a_process_of_their_own" : "the_pool";
});

}  // namespace
}  // namespace troupe::test
