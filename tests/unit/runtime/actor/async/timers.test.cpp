#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/actor/async/cell_host.hpp"

namespace troupe::test {
namespace {

using Clock = std::chrono::steady_clock;

class Ticker {
 public:
  Ticker(ActorContext& context, std::shared_ptr<Notes> notes)
      : context_(context), notes_(std::move(notes)) {
    context.run_after(0ms, [this] { notes_->add("set by the constructor"); }).release();
  }
  ~Ticker() { notes_->add("end of actor"); }

  void tick_after(int ms) {
    token_ = context_.run_after(std::chrono::milliseconds(ms), [this] { note("tick"); });
  }
  void tick_every(int ms) {
    token_ = context_.run_every(std::chrono::milliseconds(ms), [this] { note("tick"); });
  }
  /// Cancels itself at its third run.
  void tick_three_times() {
    token_ = context_.run_every(1ms, [this] {
      note("tick");
      if (++ticks_ == 3) token_.cancel();
    });
  }
  void throw_every(int ms) {
    token_ = context_.run_every(std::chrono::milliseconds(ms), [this] {
      note("throws");
      throw std::runtime_error("on purpose");
    });
  }
  /// Lets the timer fall due while this method runs, and cancels it then.
  void cancel_when_due() {
    auto token = context_.run_after(1ms, [this] { note("too late"); });
    const auto begin = Clock::now();
    while (Clock::now() - begin < 30ms) {
    }
    token.cancel();
  }
  void cancel() { token_.cancel(); }
  int busy(int rounds) {
    for (int i = 0; i < rounds; ++i) ++count_;
    return count_;
  }

  static constexpr std::string_view actor_type = "Ticker";
  using Methods = troupe::Methods<&Ticker::tick_after, &Ticker::tick_every,
                                  &Ticker::tick_three_times, &Ticker::throw_every,
                                  &Ticker::cancel_when_due, &Ticker::cancel, &Ticker::busy>;

 private:
  void note(const std::string& text) {
    ++count_;  // unguarded: TSan sees whether a method runs beside it
    notes_->add(text);
  }

  ActorContext& context_;
  const std::shared_ptr<Notes> notes_;
  TimerToken token_;
  int count_ = 0, ticks_ = 0;
};

class Timers : public ::testing::TestWithParam<bool> {
 protected:
  CellHost::Hosted<Ticker> start() {
    return host_.start<Ticker>({.dedicated_thread = GetParam()}, notes_);
  }
  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  CellHost host_;
};

TEST_P(Timers, run_once_not_before_their_delay_is_over) {
  const auto actor = start();
  EXPECT_TRUE(notes_->wait_for("set by the constructor"));
  const auto begin = Clock::now();
  must(actor.call<&Ticker::tick_after>(20).get(limit));
  ASSERT_TRUE(notes_->wait_for("tick"));
  EXPECT_GE(Clock::now() - begin, 20ms);
}

TEST_P(Timers, run_every_interval_between_methods_until_they_are_cancelled) {
  const auto actor = start();
  must(actor.call<&Ticker::tick_every>(1).get(limit));
  while (notes_->count("tick") < 20) must(actor.call<&Ticker::busy>(1000).get(limit));
  must(actor.call<&Ticker::cancel>().get(limit));
  const auto ticks = notes_->count("tick");
  must(actor.call<&Ticker::tick_after>(10).get(limit));
  ASSERT_TRUE(notes_->wait_for("tick", ticks + 1));
  EXPECT_EQ(notes_->count("tick"), ticks + 1);
}

TEST_P(Timers, may_cancel_themselves) {
  const auto actor = start();
  must(actor.call<&Ticker::tick_three_times>().get(limit));
  ASSERT_TRUE(notes_->wait_for("tick", 3));
  must(actor.call<&Ticker::throw_every>(10).get(limit));
  ASSERT_TRUE(notes_->wait_for("throws", 2)) << "goes on though it throws";
  EXPECT_EQ(notes_->count("tick"), 3U);
}

TEST_P(Timers, that_are_due_do_not_run_once_their_actor_has_cancelled_them) {
  const auto actor = start();
  must(actor.call<&Ticker::cancel_when_due>().get(limit));
  must(actor.call<&Ticker::tick_after>(1).get(limit));
  ASSERT_TRUE(notes_->wait_for("tick"));
  EXPECT_EQ(notes_->count("too late"), 0U);
}

TEST_P(Timers, do_not_run_after_the_end_of_their_actor) {
  for (int round = 0; round < 20; ++round) {
    const auto actor = start();
    must(actor.call<&Ticker::tick_every>(1).get(limit));
    ASSERT_TRUE(notes_->wait_for("tick", notes_->count("tick") + 1));
    actor.end();
    const auto notes = notes_->all();
    EXPECT_EQ(notes.back(), "end of actor");
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Timers, ::testing::Bool(), [](const auto& info) {
  return info.param ? "an_actor_with_its_own_thread" : "an_actor_of_the_pool";
});

}  // namespace
}  // namespace troupe::test
