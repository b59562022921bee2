#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/actor/async/with_timeout.hpp"
#include "tests/support/comes_true.hpp"
#include "tests/unit/runtime/actor/async/cell_host.hpp"

namespace troupe::test {
namespace {

class Asker {
 public:
  Asker(ActorContext& context, std::shared_ptr<Notes> notes, ActorHandle<Gated> gate)
      : context_(context), notes_(std::move(notes)), gate_(std::move(gate)) {}
  ~Asker() { notes_->add("end of actor"); }

  int plain() { return 1; }
  Async<int> ask(const std::string& name) {
    const Guard guard(notes_, name);
    notes_->add(name + " began");
    auto answer = co_await gate_.call<&Gated::pass>();
    notes_->add(name + " goes on");
    co_return answer;
  }
  /// No coroutine itself.
  Async<int> forward(const std::string& name) {
    notes_->add(name + " is forwarded");
    return ask(name);
  }
  Async<int> ask_deeply(int depth) {
    const Guard guard(notes_, fmt::format("depth {}", depth));
    if (depth == 0) co_return co_await ask("deep");
    TROUPE_CO_TRY(const int below, co_await ask_deeply(depth - 1));
    co_return below + 1;
  }
  Async<std::int64_t> count_to(std::int64_t end) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < end; ++i) {
      TROUPE_CO_TRY(const std::int64_t one, co_await one_());
      sum += one;
    }
    co_return sum;
  }
  Async<Result<void>> refuse(bool throws) {
    TROUPE_CO_CHECK(co_await sleep_for(0ms));
    if (throws) throw std::runtime_error("on purpose");
    co_return fail(ErrorCode::not_found, "nothing here");
  }
  /// Waits twice for one answer, the first time for `ms`, and notes that in between.
  Async<int> ask_for(int ms) {
    auto asked = gate_.call<&Gated::pass>();
    auto early = co_await with_timeout(asked, std::chrono::milliseconds(ms));
    if (early.ok()) co_return *early;
    if (early.error().code != ErrorCode::timed_out) co_return early.error();
    notes_->add("timed out");
    TROUPE_CO_TRY(const int late, co_await with_timeout(asked, 1h));
    co_return -late;
  }
  Async<void> sleep(int ms) { (void)co_await sleep_for(std::chrono::milliseconds(ms)); }
  Async<std::string> text() { co_return "a text"; }
  Async<int> leave_and_wait() {
    context_.exit("enough");
    TROUPE_CO_CHECK(co_await sleep_for(1h));
    co_return 1;
  }
  Async<int> leave() {
    context_.exit("enough");
    co_return 7;
  }
  /// The number of coroutines that ran in the same moment, at most.
  Async<int> work(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      most_ = std::max(most_, ++running_);
      --running_;
      TROUPE_CO_CHECK(co_await sleep_for(0ms));
    }
    co_return most_;
  }

  static constexpr std::string_view actor_type = "Asker";
  using Methods =
      troupe::Methods<&Asker::plain, &Asker::ask, &Asker::ask_deeply, &Asker::count_to,
                      &Asker::refuse, &Asker::sleep, &Asker::text, &Asker::leave_and_wait,
                      &Asker::leave, &Asker::work, &Asker::ask_for, &Asker::forward>;

 private:
  Async<int> one_() { co_return 1; }

  ActorContext& context_;
  const std::shared_ptr<Notes> notes_;
  const ActorHandle<Gated> gate_;
  int running_ = 0, most_ = 0;  // unguarded: TSan sees who runs beside another
};

class Coroutines : public ::testing::TestWithParam<bool> {
 protected:
  CellHost::Hosted<Asker> start(int max_concurrency = 0) {
    return host_.start<Asker>({.dedicated_thread = GetParam(), .max_concurrency = max_concurrency},
                              notes_, add_gate(host_, gate_, 1000));
  }

  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  CellHost host_;
};

TEST_P(Coroutines, are_recorded_in_the_parts_between_their_waits) {
  const auto actor = start();
  CallTimeline& timeline = host_.hub().observer()->timeline();
  timeline.start(60s);
  auto asked = actor.call<&Asker::ask>("one");
  ASSERT_TRUE(gate_->wait_for_calls(1));
  std::this_thread::sleep_for(20ms);
  gate_->answer(0, 1);
  must(asked.get(limit));
  must(actor.call<&Asker::count_to>(100).get(limit));  // never waits
  actor.end();
  const Timeline taken = timeline.take();
  std::vector<TimelineEvent> parts, whole, calls_of_actor;
  for (const TimelineEvent& event : taken.events) {
    const std::string& name = taken.names[event.name];
    if (name == "Asker.ask") parts.push_back(event);
    if (name == "Asker.count_to") whole.push_back(event);
    if (event.made_ns != 0 && event.actor == actor.handle.id()) calls_of_actor.push_back(event);
  }
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_FALSE(parts[0].is_resumed);
  EXPECT_TRUE(parts[1].is_resumed);
  EXPECT_EQ(parts[0].call, parts[1].call);
  EXPECT_NE(parts[0].queued_ns, 0);
  EXPECT_EQ(parts[1].queued_ns, 0);
  EXPECT_LE(parts[0].begin_ns, parts[0].end_ns);
  EXPECT_GE(parts[1].begin_ns - parts[0].end_ns, 20'000'000) << "it did not run meanwhile";
  EXPECT_EQ(whole.size(), 1U);
  EXPECT_EQ(calls_of_actor.size(), 1U) << "the call that it made is its own";
}

TEST_P(Coroutines, let_their_actor_take_calls_while_they_wait) {
  const auto actor = start();
  auto first = actor.call<&Asker::ask>("first");
  auto second = actor.call<&Asker::ask>("second");
  ASSERT_TRUE(gate_->wait_for_calls(2));
  EXPECT_EQ(must(actor.call<&Asker::plain>().get(limit)), 1);
  gate_->answer(1, 22);
  EXPECT_EQ(must(second.get(limit)), 22);
  EXPECT_FALSE(first.ready());
  gate_->answer(0, 11);
  EXPECT_EQ(must(first.get(limit)), 11);
  EXPECT_THAT(notes_->all(),
              ::testing::ElementsAre("first began", "second began", "second goes on",
                                     "end of second", "first goes on", "end of first"));
}

TEST_P(Coroutines, return_values_errors_and_exceptions) {
  const auto actor = start();
  EXPECT_EQ(must(actor.call<&Asker::text>().get(limit)), "a text");
  const auto error = actor.call<&Asker::refuse>(false).get(limit);
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, ErrorCode::not_found);
  EXPECT_EQ(error.error().message, "nothing here");
  const auto thrown = actor.call<&Asker::refuse>(true).get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_THAT(thrown.error().message, ::testing::HasSubstr("on purpose"));
}

TEST_P(Coroutines, await_each_other_without_a_deep_stack) {
  const auto actor = start();
  EXPECT_EQ(must(actor.call<&Asker::count_to>(200'000).get(limit)), 200'000);
  auto deep = actor.call<&Asker::ask_deeply>(20'000);
  ASSERT_TRUE(gate_->wait_for_calls(1));
  gate_->answer(0, 5);
  EXPECT_EQ(must(deep.get(limit)), 20'005);
}

TEST_P(Coroutines, sleep_while_others_run) {
  const auto actor = start();
  auto long_sleep = actor.call<&Asker::sleep>(3'600'000);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(actor.call<&Asker::sleep>(30).get(limit).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
  EXPECT_FALSE(long_sleep.ready());
}

TEST_P(Coroutines, wait_for_an_answer_no_longer_than_they_say) {
  const auto actor = start();
  auto late = actor.call<&Asker::ask_for>(5);
  ASSERT_TRUE(notes_->wait_for("timed out"));
  gate_->answer(0, 3);
  EXPECT_EQ(must(late.get(limit)), -3);
  auto early = actor.call<&Asker::ask_for>(3'600'000);
  ASSERT_TRUE(gate_->wait_for_calls(2));
  gate_->answer(1, 4);
  EXPECT_EQ(must(early.get(limit)), 4);
}

TEST_P(Coroutines, may_come_from_plain_functions_which_do_not_run_for_cancelled_calls) {
  const auto actor = start(1);
  auto first = actor.call<&Asker::forward>("first");
  ASSERT_TRUE(gate_->wait_for_calls(1));
  auto cancelled = actor.call<&Asker::forward>("second");
  auto third = actor.call<&Asker::forward>("third");
  cancelled.cancel();
  EXPECT_EQ(cancelled.get(limit).error().code, ErrorCode::cancelled);
  gate_->answer(0, 1);
  EXPECT_EQ(must(first.get(limit)), 1);
  ASSERT_TRUE(gate_->wait_for_calls(2));
  gate_->answer(1, 3);
  EXPECT_EQ(must(third.get(limit)), 3);
  EXPECT_EQ(notes_->count("second is forwarded"), 0U);
}

TEST_P(Coroutines, leave_the_queue_of_a_full_group_when_they_are_cancelled) {
  const auto actor = start(1);
  const auto queued = [&]() -> std::uint64_t {
    for (const auto& load : host_.hub().observer()->loads()) {
      if (load.actor == actor.handle.id()) return load.queued;
    }
    return 0;
  };
  auto first = actor.call<&Asker::ask>("first");
  ASSERT_TRUE(gate_->wait_for_calls(1));
  for (int round = 0; round < 20; ++round) {
    std::vector<Future<int>> calls;
    for (int i = 0; i < 50; ++i) calls.push_back(actor.call<&Asker::ask>("later"));
    for (auto& call : calls) call.cancel();
    for (auto& call : calls) EXPECT_EQ(call.get(limit).error().code, ErrorCode::cancelled);
  }
  EXPECT_TRUE(comes_true([&] { return queued() == 1; })) << queued();
  gate_->answer(0, 1);
  EXPECT_EQ(must(first.get(limit)), 1);
  EXPECT_EQ(notes_->count("later began"), 0U);
}

TEST_P(Coroutines, run_one_at_a_time_on_whichever_thread) {
  const auto actor = start();
  std::vector<Future<int>> answers;
  for (int i = 0; i < 100; ++i) answers.push_back(actor.call<&Asker::work>(50));
  for (auto& answer : answers) EXPECT_EQ(must(answer.get(limit)), 1);
}

TEST_P(Coroutines, wait_in_order_for_a_place_among_max_concurrency) {
  const auto actor = start(2);
  std::vector<Future<int>> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(actor.call<&Asker::ask>(std::to_string(i)));
  ASSERT_TRUE(gate_->wait_for_calls(2));
  EXPECT_EQ(notes_->count("2 began"), 0U);
  for (int i = 0; i < 5; ++i) {
    gate_->answer(i, i);
    EXPECT_EQ(must(answers[i].get(limit)), i);
    if (i + 2 < 5) {
      ASSERT_TRUE(gate_->wait_for_calls(i + 3));
    }
  }
  std::vector<std::string> begun;
  for (const auto& note : notes_->all()) {
    if (note.ends_with(" began")) begun.push_back(note);
  }
  EXPECT_THAT(begun, ::testing::ElementsAre("0 began", "1 began", "2 began", "3 began", "4 began"));
}

TEST_P(Coroutines, are_destroyed_before_their_actor_and_their_callers_answered) {
  const auto actor = start(2);
  auto waiting = actor.call<&Asker::ask_deeply>(3);
  auto sleeping = actor.call<&Asker::sleep>(3'600'000);
  auto queued = actor.call<&Asker::ask>("never");
  ASSERT_TRUE(gate_->wait_for_calls(1));
  actor.end();
  EXPECT_FALSE(waiting.get(limit).ok());
  EXPECT_FALSE(sleeping.get(limit).ok());
  const auto refused = queued.get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("has ended"));
  EXPECT_THAT(notes_->all(), ::testing::ElementsAre("deep began", "end of deep", "end of depth 0",
                                                    "end of depth 1", "end of depth 2",
                                                    "end of depth 3", "end of actor"));
  gate_->answer(0, 1);  // an answer that comes too late
}

TEST_P(Coroutines, that_are_due_when_their_actor_ends_do_not_go_on) {
  const auto actor = start();
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 50; ++i) waiting.push_back(actor.call<&Asker::ask>("one"));
  ASSERT_TRUE(gate_->wait_for_calls(50));
  std::thread answering([&] {
    for (int i = 0; i < 50; ++i) gate_->answer(i, i);
  });
  actor.end();
  answering.join();
  for (int i = 0; i < 50; ++i) {
    const auto answer = waiting[i].get(limit);
    if (answer.ok()) {
      EXPECT_EQ(*answer, i);
    }
  }
  EXPECT_EQ(notes_->count("end of one"), 50U);
}

TEST_P(Coroutines, end_with_their_actor_when_it_exits) {
  const auto waits = start();
  EXPECT_FALSE(waits.call<&Asker::leave_and_wait>().get(limit).ok());
  EXPECT_TRUE(waits.cell->wait_until_over(limit));
  const auto answers = start();
  EXPECT_EQ(must(answers.call<&Asker::leave>().get(limit)), 7);
  EXPECT_TRUE(answers.cell->wait_until_over(limit));
}

INSTANTIATE_TEST_SUITE_P(Of, Coroutines, ::testing::Bool(), [](const auto& info) {
  return info.param ? "an_actor_with_its_own_thread" : "an_actor_of_the_pool";
});

}  // namespace
}  // namespace troupe::test
