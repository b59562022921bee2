#include "runtime/call/call_observer.hpp"

#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/metrics/metrics_sum.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::array<std::string_view, 2> methods{"open", "sell"};
const ActorAddress shop{.id = 7, .endpoint = "", .name = "shop", .type = "Shop"};

std::string text_of(const CallObserver& observer) {
  MetricsSum sum;
  sum.add(observer.snapshot().metrics);
  return sum.text();
}

TEST(CallObserver, counts_calls_by_class_and_method) {
  const auto observer = std::make_shared<CallObserver>();
  {
    const auto load = observer->add_actor(std::make_shared<const ActorAddress>(shop), methods);
    observer->on_call(1, shop, 1);
    observer->on_call(2, shop, 1);
    observer->on_call(3, shop, 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(load->on_delivered(), 0) << "nothing is recorded";
    EXPECT_EQ(load->end(load->begin(1, 1, 0), 42), 42);
    observer->on_failed("Shop", "sell", ErrorCode::timed_out);
    EXPECT_THAT(
        text_of(*observer),
        AllOf(HasSubstr("troupe_calls_made_total{actor_type=\"Shop\",method=\"sell\"} 2\n"),
              HasSubstr("troupe_calls_made_total{actor_type=\"Shop\",method=\"open\"} 1\n"),
              HasSubstr("troupe_calls_served_total{actor_type=\"Shop\",method=\"sell\"} 1\n"),
              HasSubstr("troupe_calls_failed_total{actor_type=\"Shop\",code=\"timed_out\","
                        "method=\"sell\"} 1\n"),
              HasSubstr("troupe_mailbox_calls{actor_type=\"Shop\"} 2\n"),
              HasSubstr("troupe_actors{actor_type=\"Shop\"} 1\n")));
    ASSERT_EQ(observer->loads().size(), 1U);
    EXPECT_EQ(observer->loads()[0].queued, 2U);
    EXPECT_EQ(observer->loads()[0].served, 1U);
  }
  EXPECT_TRUE(observer->loads().empty()) << "it has ended";
  EXPECT_THAT(text_of(*observer),
              AllOf(HasSubstr("troupe_calls_served_total{"), Not(HasSubstr("troupe_actors{"))));
}

TEST(CallObserver, tells_classes_apart_whose_counts_are_looked_up_in_one_place) {
  const auto observer = std::make_shared<CallObserver>();
  constexpr int classes = 600;  // more than there are places
  for (int i = 0; i < 3 * classes; ++i) {
    ActorAddress actor = shop;
    actor.type = fmt::format("Mill{}", i % classes);
    observer->on_call(1, actor, 0);
  }
  const std::string text = text_of(*observer);
  for (int i = 0; i < classes; ++i) {
    const auto line = fmt::format("{{actor_type=\"Mill{}\",method=\"#0\"}} 3\n", i);
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(CallTimeline, has_a_call_where_it_was_made_and_where_it_ran) {
  const auto observer = std::make_shared<CallObserver>();
  const auto load = observer->add_actor(std::make_shared<const ActorAddress>(shop), methods);
  observer->timeline().start(60s);
  observer->on_call(5, shop, 1);
  const auto queued = load->on_delivered();
  const auto running = load->begin(1, 5, queued);
  observer->on_call(6, shop, 0);  // by the actor's method
  load->on_ended(running);
  const Timeline taken = observer->timeline().take();
  ASSERT_EQ(taken.events.size(), 3U);
  EXPECT_EQ(taken.events[0].actor, 0U);
  EXPECT_NE(taken.events[0].thread, 0U);
  EXPECT_TRUE(taken.threads.contains(taken.events[0].thread));
  EXPECT_EQ(taken.events[1].actor, shop.id);
  const TimelineEvent& ran = taken.events[2];
  EXPECT_EQ(ran.call, 5U);
  EXPECT_EQ(taken.names[ran.name], "Shop.sell");
  EXPECT_LE(taken.events[0].made_ns, ran.queued_ns);
  EXPECT_LE(ran.queued_ns, ran.begin_ns);
  EXPECT_LE(ran.begin_ns, ran.end_ns);
  EXPECT_EQ(taken.actors.at(shop.id), "shop");
  observer->on_call(7, shop, 0);
  EXPECT_TRUE(observer->timeline().take().events.empty()) << "it is over";
}

TEST(CallTimeline, keeps_the_latest_events_and_says_so) {
  CallTimeline timeline;
  timeline.start(60s);
  for (std::uint64_t i = 0; i < CallTimeline::capacity + 3; ++i) timeline.note_made(i, "Shop");
  const Timeline taken = timeline.take();
  EXPECT_FALSE(taken.has_all);
  ASSERT_EQ(taken.events.size(), CallTimeline::capacity);
  EXPECT_EQ(taken.events.front().call, 3U);
  EXPECT_EQ(taken.events.back().call, CallTimeline::capacity + 2);
}

TEST(CallTimeline, ends_by_itself) {
  CallTimeline timeline;
  timeline.start(0s);
  timeline.note_made(1, "Shop");
  EXPECT_FALSE(timeline.is_on());
  EXPECT_TRUE(timeline.take().events.empty());
}

}  // namespace
}  // namespace troupe
