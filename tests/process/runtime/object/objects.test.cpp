#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/object/object_actors.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t large = 1 << 20;  ///< floats

/// Remembers what it was asked.
class Source final : public ObjectSource {
 public:
  void recompute(const Error& why) override { asked.complete(Result<std::string>(why.message)); }
  void cancel() override { cancelled.complete({}); }
  const Promise<std::string> asked;
  const Promise<void> cancelled;
};

TEST(Objects, of_the_driver_are_read_by_actors_where_they_lie) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  const auto ref = must(cluster->put(Floats(large, 2.0F)));
  EXPECT_EQ(must(reader.call<&Reader::sum>(ref).get(limit)), 2.0 * large);
  const std::string mapping = must(reader.call<&Reader::mapping_of>(ref).get(limit));
  EXPECT_THAT(mapping, HasSubstr("memfd:troupe object"));
  EXPECT_THAT(mapping, HasSubstr(" r--s "));
}

TEST(Objects, that_are_small_travel_inside_answers) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  const auto ref = must(cluster->put(std::string("a few words")));
  EXPECT_EQ(must(reader.call<&Reader::text>(ref).get(limit)), "a few words");
  EXPECT_EQ(*must(cluster->get(ref, limit)), "a few words");
  EXPECT_EQ(cluster->objects().counts().held, 0);
}

TEST(Objects, are_put_and_read_by_any_process) {
  const auto cluster = start_cluster();
  const auto maker = must(cluster->spawn<Reader>({}).get(limit));
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  const auto ref = must(maker.call<&Reader::make>(large, 3.0F).get(limit));
  EXPECT_EQ(must(cluster->get(ref, limit))->size(), large);
  EXPECT_EQ(must(reader.call<&Reader::sum>(ref).get(limit)), 3.0 * large);
  EXPECT_EQ(must(maker.call<&Reader::sum_through>(reader, ref).get(limit)), 3.0 * large);
}

TEST(Objects, are_freed_with_their_last_reference) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  auto ref = must(cluster->put(Floats(large, 1.0F)));
  must(reader.call<&Reader::keep>(ref).get(limit));
  ref = {};
  EXPECT_EQ(must(reader.call<&Reader::sum_of_kept>().get(limit)), large);
  EXPECT_EQ(cluster->objects().counts().owned, 1);
  must(reader.call<&Reader::forget>().get(limit));
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().owned == 0; }));
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().held == 0; }));
}

TEST(Objects, of_an_answer_live_until_the_caller_has_them) {
  const auto cluster = start_cluster();
  const auto maker = must(cluster->spawn<Reader>({}).get(limit));
  for (int i = 0; i < 50; ++i) {
    auto answer = maker.call<&Reader::make>(large / 8, 1.0F);
    EXPECT_EQ(must(cluster->get(must(answer.get(limit)), limit)).get().size(), large / 8);
  }
  EXPECT_TRUE(comes_true([&] {
    return must(maker.call<&Reader::counts>().get(limit))[0] == 0;  // nothing is left
  }));
  (void)maker.call<&Reader::make>(large / 8, 1.0F);  // nobody takes this one
  EXPECT_TRUE(comes_true([&] { return must(maker.call<&Reader::counts>().get(limit))[0] == 0; }));
}

TEST(Objects, keep_the_objects_in_them) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  Chapter chapter{"one", must(cluster->put(Floats(large, 1.0F))), {}};
  chapter.notes.push_back(must(cluster->put(std::string("12345"))));
  const auto ref = must(cluster->put(chapter));
  chapter = {};
  EXPECT_EQ(cluster->objects().counts().owned, 3);
  EXPECT_EQ(must(reader.call<&Reader::sum_of_chapter>(ref).get(limit)), large + 5.0);
}

TEST(Objects, whose_owner_has_ended_are_lost_but_views_stay) {
  const auto cluster = start_cluster();
  const auto maker = must(cluster->spawn<Reader>({.name = "maker"}).get(limit));
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  const auto ref = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  must(reader.call<&Reader::keep>(ref).get(limit));
  EXPECT_EQ(must(reader.call<&Reader::view_kept>().get(limit)), large);
  ASSERT_TRUE(cluster->kill(maker).ok());
  const auto lost = [&] {
    const auto got = cluster->get(ref, limit);
    if (got.ok()) return false;
    EXPECT_EQ(got.error().code, ErrorCode::object_lost);
    EXPECT_THAT(got.error().message, HasSubstr("maker"));
    return true;
  };
  EXPECT_TRUE(comes_true(lost));
  EXPECT_EQ(must(reader.call<&Reader::sum_of_view>().get(limit)), large);
}

TEST(Objects, of_an_owner_that_has_ended_hold_up_no_answer_of_a_process_that_is_given_them) {
  const auto cluster = start_cluster();
  const auto maker = must(cluster->spawn<Reader>({.name = "maker"}).get(limit));
  const auto late = must(cluster->spawn<Reader>({}).get(limit));
  const auto ref = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  ASSERT_TRUE(cluster->kill(maker).ok());
  EXPECT_TRUE(comes_true([&] { return !cluster->get(ref, limit).ok(); }));
  const auto sum = late.call<&Reader::sum>(ref).get(limit);
  ASSERT_FALSE(sum.ok());
  EXPECT_EQ(sum.error().code, ErrorCode::object_lost) << sum.error().message;
  EXPECT_TRUE(late.call<&Reader::pid>().get(limit).ok());
}

TEST(Objects, of_an_owner_that_is_stopped_are_waited_for_no_longer_than_asked) {
  const auto cluster = start_cluster();
  const auto maker = must(cluster->spawn<Reader>({}).get(limit));
  const int owner = must(maker.call<&Reader::pid>().get(limit));
  const auto first = must(maker.call<&Reader::make_and_keep>(large, 1.0F).get(limit));
  EXPECT_TRUE(cluster->get(first, limit).ok());  // from now on its process is asked first
  const auto second = must(maker.call<&Reader::make>(large, 1.0F).get(limit));
  ::kill(owner, SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const auto got = cluster->get(second, std::chrono::milliseconds(50));
  const auto took = std::chrono::steady_clock::now() - begin;
  ::kill(owner, SIGCONT);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::timed_out) << got.error().message;
  EXPECT_LT(took, std::chrono::milliseconds(1500));
}

TEST(Objects, are_not_lost_by_a_reader_that_cannot_open_them) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  const auto words = must(cluster->put(std::string("words")));
  must(reader.call<&Reader::text>(words).get(limit));  // there is a link to the owner
  std::vector<ObjectRef<Floats>> refs;
  // The first one needs a socket to the owner's SegmentServer, the second one only a descriptor.
  for (int i = 0; i < 2; ++i) {
    refs.push_back(must(cluster->put(Floats(large, 1.0F))));
    EXPECT_EQ(must(reader.call<&Reader::get_without_descriptors>(refs[i]).get(limit)), "io");
    EXPECT_EQ(must(reader.call<&Reader::sum>(refs[i]).get(limit)), large);
  }
  refs.clear();
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().owned == 1; })) << "the words";
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().held == 0; }));
}

TEST(Objects, are_freed_when_the_process_with_the_last_reference_dies) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  auto ref = must(cluster->put(Floats(large, 1.0F)));
  must(reader.call<&Reader::keep>(ref).get(limit));
  must(reader.call<&Reader::view_kept>().get(limit));
  ref = {};
  EXPECT_EQ(cluster->objects().counts().owned, 1);
  ASSERT_TRUE(cluster->kill(reader).ok());
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().owned == 0; }));
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().held == 0; }));
}

TEST(Objects, may_be_read_after_the_cluster_has_ended) {
  auto cluster = start_cluster();
  const auto ref = must(cluster->put(Floats(large, 4.0F)));
  const auto view = must(cluster->get(ref, limit));
  auto other = must(cluster->put(Floats(large, 5.0F)));  // freed without a cluster
  cluster.reset();
  other = {};
  EXPECT_EQ(view.get()[large - 1], 4.0F);
}

TEST(Objects, that_are_pending_are_waited_for) {
  const auto cluster = start_cluster();
  auto& store = cluster->objects();
  const auto source = std::make_shared<Source>();
  const ObjectRef<std::string> late(store.make_pending(source));
  const auto there = must(cluster->put(std::string("there")));
  auto waited = cluster->wait<std::string>({late, there}, 2, 50ms);
  ASSERT_EQ(waited.ready.size(), 1);
  EXPECT_EQ(waited.ready[0], there);
  EXPECT_EQ(waited.not_ready[0], late);
  EXPECT_EQ(cluster->get(late, 10ms).error().code, ErrorCode::timed_out);
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  auto text = reader.call<&Reader::text>(late);
  cluster->cancel(late);
  EXPECT_TRUE(source->cancelled.future().ready());
  const std::string value = "late";
  const auto bytes = std::as_bytes(std::span(value));
  store.fulfil(late.id(), Bytes(bytes.begin(), bytes.end()), {});
  EXPECT_EQ(must(text.get(limit)), "late");
  waited = cluster->wait<std::string>({late, there}, 2, limit);
  EXPECT_EQ(waited.ready.size(), 2);
}

TEST(Objects, whose_copies_are_lost_are_computed_again) {
  const auto cluster = start_cluster();
  auto& store = cluster->objects();
  const auto worker = must(cluster->spawn<Reader>({}).get(limit));
  const auto source = std::make_shared<Source>();
  const ObjectRef<Floats> result(store.make_pending(source));
  EXPECT_TRUE(store.is_pending(result.id()));
  must(worker.call<&Reader::hold_for>(result, large, 5.0F).get(limit));
  EXPECT_FALSE(store.is_pending(result.id()));
  EXPECT_EQ(must(cluster->get(result, limit)).get()[large - 1], 5.0F);
  ASSERT_TRUE(cluster->kill(worker).ok());
  EXPECT_THAT(must(source->asked.future().get(limit)), HasSubstr("is lost"));
  EXPECT_EQ(cluster->get(result, 1ms).error().code, ErrorCode::timed_out);
  const Floats value(large, 6.0F);
  const auto bytes = std::as_bytes(std::span(value));
  store.fulfil(result.id(), Bytes(bytes.begin(), bytes.end()), {});
  EXPECT_EQ(must(cluster->get(result, limit)).get()[large - 1], 6.0F);
}

TEST(Objects, that_are_not_waited_for_are_not_held) {
  const auto cluster = start_cluster();
  const auto worker = must(cluster->spawn<Reader>({}).get(limit));
  const auto there = must(cluster->put(Floats{1.0F}));
  must(worker.call<&Reader::hold_for>(there, large, 5.0F).get(limit));
  EXPECT_EQ(must(worker.call<&Reader::counts>().get(limit))[1], 0U);
  EXPECT_EQ(must(cluster->get(there, limit))->size(), 1U);
}

TEST(Objects, among_construction_arguments_are_kept_until_the_actor_has_them) {
  const auto cluster = start_cluster();
  auto ref = must(cluster->put(Floats(large, 2.0F)));
  auto keeper = cluster->spawn<Keeper>({}, ref);
  ref = {};
  const auto made = must(keeper.get(limit));
  EXPECT_EQ(must(made.call<&Keeper::sum>().get(limit)), 2.0 * large);
  ASSERT_TRUE(cluster->stop(made).ok());
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().owned == 0; }));
}

TEST(Objects, among_construction_arguments_are_kept_for_later_incarnations) {
  const auto cluster = start_cluster();
  const auto reader = must(cluster->spawn<Reader>({}).get(limit));
  auto ref = must(cluster->put(Floats(large, 3.0F)));
  auto of_driver = must(cluster->spawn<Keeper>({.max_restarts = 1}, ref).get(limit));
  auto of_actor = must(reader.call<&Reader::spawn_keeper>(ref, 1).get(limit));
  ref = {};
  for (const auto& keeper : {of_driver, of_actor}) {
    const int pid = must(keeper.call<&Keeper::pid_after_forgetting>().get(limit));
    ::kill(pid, SIGKILL);
    EXPECT_EQ(must(keeper.with({.max_retries = -1}).call<&Keeper::sum>().get(limit)), 3.0 * large);
  }
  ASSERT_TRUE(cluster->stop(of_driver).ok());
  EXPECT_EQ(cluster->objects().counts().owned, 1U);
  ASSERT_TRUE(cluster->stop(of_actor).ok());
  EXPECT_TRUE(comes_true([&] { return cluster->objects().counts().owned == 0; }));
}

}  // namespace
}  // namespace troupe::test
