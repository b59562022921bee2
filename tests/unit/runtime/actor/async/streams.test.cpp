#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/actor/async/cell_host.hpp"

namespace troupe::test {
namespace {

class Producer {
 public:
  Producer(ActorContext& context, std::shared_ptr<Notes> notes, ActorHandle<Gated> gate)
      : context_(context), notes_(std::move(notes)), gate_(std::move(gate)) {}

  Stream<int> numbers(int count) {
    const Guard guard(notes_, "numbers");
    for (int i = 0; i < count; ++i) {
      notes_->add("yield");
      co_yield i;
    }
  }
  Stream<std::string> texts(int count, std::uint64_t bytes) {
    for (int i = 0; i < count; ++i) {
      notes_->add("yield");
      co_yield std::string(bytes, 'x');
    }
  }
  /// Passes on what the gate answers, of which errors end the stream.
  Stream<int> passed() {
    const Guard guard(notes_, "passed");
    while (true) co_yield co_await gate_.call<&Gated::pass>();
  }
  Stream<int> failing(bool throws) {
    co_yield 1;
    if (throws) throw std::runtime_error("on purpose");
    co_yield fail(ErrorCode::not_found, "nothing more");
    notes_->add("went on behind an error");
  }
  /// Reads the stream of another one to its end.
  Async<int> sum_of(ActorHandle<Producer> other, int count) {
    auto numbers = other.call<&Producer::numbers>(count);
    int sum = 0;
    while (true) {
      TROUPE_CO_TRY(const auto number, co_await numbers.next());
      if (!number) co_return sum;
      sum += *number;
    }
  }
  Async<int> read_passed(ActorHandle<Producer> other) {
    const Guard guard(notes_, "reader");
    auto numbers = other.call<&Producer::passed>();
    notes_->add("reads");
    TROUPE_CO_TRY(const auto number, co_await numbers.next());
    co_return number.value_or(-1);
  }
  int plain() { return 1; }
  void leave() { context_.exit("enough"); }

  static constexpr std::string_view actor_type = "Producer";
  using Methods = troupe::Methods<&Producer::numbers, &Producer::texts, &Producer::passed,
                                  &Producer::failing, &Producer::sum_of, &Producer::read_passed,
                                  &Producer::plain, &Producer::leave>;

 private:
  ActorContext& context_;
  const std::shared_ptr<Notes> notes_;
  const ActorHandle<Gated> gate_;
};

class Streams : public ::testing::Test {
 protected:
  CellHost::Hosted<Producer> start(int max_concurrency = 0) {
    return host_.start<Producer>({.max_concurrency = max_concurrency}, notes_,
                                 add_gate(host_, gate_, 1000));
  }
  /// Yields do not go beyond `count`, although the actor has had time for more.
  void expect_yields(const CellHost::Hosted<Producer>& actor, std::size_t count) {
    ASSERT_TRUE(notes_->wait_for("yield", count));
    for (int i = 0; i < 3; ++i) must(actor.call<&Producer::plain>().get(limit));
    EXPECT_EQ(notes_->count("yield"), count);
  }

  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  CellHost host_;
};

TEST_F(Streams, bring_all_items_in_order_and_then_the_end) {
  const auto actor = start();
  auto numbers = actor.call<&Producer::numbers>(1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(must(numbers.next(limit)), std::optional(i));
  EXPECT_EQ(must(numbers.next(limit)), std::nullopt);
  EXPECT_EQ(must(numbers.next(limit)), std::nullopt);
  auto none = actor.call<&Producer::numbers>(0);
  EXPECT_EQ(must(none.next(limit)), std::nullopt);
  EXPECT_TRUE(notes_->wait_for("end of numbers", 2));
}

TEST_F(Streams, run_at_most_a_window_ahead_of_their_readers) {
  const auto actor = start();
  auto numbers = actor.call<&Producer::numbers>(1000);
  expect_yields(actor, 16);
  EXPECT_EQ(must(numbers.next(limit)), std::optional(0));  // there is no other: it asks for more
  expect_yields(actor, 17);
  for (int i = 1; i < 9; ++i) EXPECT_EQ(must(numbers.next(limit)), std::optional(i));
  expect_yields(actor, 25);
  for (int i = 9; i < 100; ++i) {
    EXPECT_EQ(must(numbers.next(limit)), std::optional(i));
    EXPECT_LE(notes_->count("yield"), static_cast<std::size_t>(i) + 17);
  }
}

TEST_F(Streams, of_large_items_run_less_ahead) {
  const auto actor = start();
  auto texts = actor.call<&Producer::texts>(100, std::uint64_t{400} << 10);
  expect_yields(actor, 3);
  for (int i = 0; i < 100; ++i) {
    const auto text = must(texts.next(limit));
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(text->size(), std::size_t{400} << 10);
  }
  EXPECT_EQ(must(texts.next(limit)), std::nullopt);
}

TEST_F(Streams, bring_each_item_as_soon_as_it_is_there) {
  const auto actor = start();
  auto passed = actor.call<&Producer::passed>();
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(gate_->wait_for_calls(i + 1));
    const auto early = passed.next(0ms);
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().code, ErrorCode::timed_out);
    gate_->answer(i, i);
    EXPECT_EQ(must(passed.next(limit)), std::optional(i));
  }
}

TEST_F(Streams, end_with_the_error_of_their_method_behind_its_items) {
  const auto actor = start();
  auto failing = actor.call<&Producer::failing>(false);
  EXPECT_EQ(must(failing.next(limit)), std::optional(1));
  for (int i = 0; i < 2; ++i) {
    const auto error = failing.next(limit);
    ASSERT_FALSE(error.ok());
    EXPECT_EQ(error.error().code, ErrorCode::not_found);
  }
  EXPECT_EQ(notes_->count("went on behind an error"), 0U);
  auto throwing = actor.call<&Producer::failing>(true);
  EXPECT_EQ(must(throwing.next(limit)), std::optional(1));
  const auto thrown = throwing.next(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_THAT(thrown.error().message, ::testing::HasSubstr("on purpose"));
}

TEST_F(Streams, are_read_by_coroutines) {
  const auto actor = start();
  const auto other = start();
  EXPECT_EQ(must(actor.call<&Producer::sum_of>(other.handle, 1000).get(limit)), 999 * 500);
  EXPECT_EQ(must(actor.call<&Producer::sum_of>(actor.handle, 100).get(limit)), 99 * 50);
}

TEST_F(Streams, end_their_method_when_the_reader_is_dropped) {
  const auto actor = start();
  {
    auto ahead = actor.call<&Producer::numbers>(1000);
    expect_yields(actor, 16);
  }
  EXPECT_TRUE(notes_->wait_for("end of numbers"));
  {
    auto waiting = actor.call<&Producer::passed>();
    ASSERT_TRUE(gate_->wait_for_calls(1));
  }
  EXPECT_TRUE(notes_->wait_for("end of passed"));
  gate_->answer(0, 1);
  EXPECT_EQ(must(actor.call<&Producer::plain>().get(limit)), 1);
}

TEST_F(Streams, that_are_queued_do_not_begin_once_their_reader_is_dropped) {
  const auto actor = start(1);
  auto first = actor.call<&Producer::passed>();
  ASSERT_TRUE(gate_->wait_for_calls(1));
  {
    auto never = actor.call<&Producer::numbers>(5);
  }
  gate_->answer(0, 3);
  EXPECT_EQ(must(first.next(limit)), std::optional(3));
  ASSERT_TRUE(gate_->wait_for_calls(2));
  first = actor.call<&Producer::passed>();  // drops the first
  ASSERT_TRUE(gate_->wait_for_calls(3));
  EXPECT_EQ(notes_->count("yield"), 0U);
}

TEST_F(Streams, whose_actor_ends_tell_their_readers_and_are_destroyed) {
  const auto actor = start();
  auto ahead = actor.call<&Producer::numbers>(1000);
  auto waiting = actor.call<&Producer::passed>();
  ASSERT_TRUE(gate_->wait_for_calls(1));
  expect_yields(actor, 16);
  actor.end();
  EXPECT_EQ(notes_->count("end of numbers"), 1U);
  EXPECT_EQ(notes_->count("end of passed"), 1U);
  EXPECT_FALSE(waiting.next(limit).ok());
  int read = 0;
  auto next = ahead.next(limit);
  for (; next.ok() && *next; next = ahead.next(limit)) ++read;
  EXPECT_GE(read, 1) << "what has come is read";
  EXPECT_FALSE(next.ok());
}

TEST_F(Streams, are_closed_when_the_reading_coroutine_is_destroyed) {
  const auto producer = start();
  const auto reader = start();
  auto answer = reader.call<&Producer::read_passed>(producer.handle);
  ASSERT_TRUE(gate_->wait_for_calls(1));
  ASSERT_TRUE(notes_->wait_for("reads"));
  reader.end();
  EXPECT_FALSE(answer.get(limit).ok());
  EXPECT_EQ(notes_->count("end of reader"), 1U);
  EXPECT_TRUE(notes_->wait_for("end of passed"));
}

TEST_F(Streams, of_many_readers_go_on_beside_each_other) {
  const auto actor = start();
  std::vector<std::thread> readers;
  std::atomic<int> sums = 0;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      auto numbers = actor.call<&Producer::numbers>(500);
      int sum = 0;
      for (auto next = must(numbers.next(limit)); next; next = must(numbers.next(limit))) {
        sum += *next;
      }
      if (sum == 499 * 250) ++sums;
    });
  }
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(sums, 8);
}

TEST(StreamsWithFewCredits, end_their_method_though_the_reader_has_no_credit_left) {
  const auto notes = std::make_shared<Notes>();
  const auto gate = std::make_shared<Gate>();
  CallHub::Options calls;
  calls.credits = 2;
  calls.credit_timeout = 50ms;
  CellHost host(calls);
  const auto actor = host.start<Producer>({}, notes, add_gate(host, gate, 1000));
  auto first = std::make_unique<StreamReader<int>>(actor.call<&Producer::passed>());
  auto second = actor.call<&Producer::passed>();  // both calls are unanswered
  ASSERT_TRUE(gate->wait_for_calls(2));
  EXPECT_FALSE(actor.call<&Producer::plain>().get(limit).ok()) << "there is no credit";
  first.reset();
  EXPECT_TRUE(notes->wait_for("end of passed"));
  EXPECT_EQ(must(actor.call<&Producer::plain>().get(limit)), 1);
  gate->answer(1, 5);
  EXPECT_EQ(must(second.next(limit)), std::optional(5));
}

}  // namespace
}  // namespace troupe::test
