#include <gtest/gtest.h>

#include "runtime/base/deadline.hpp"
#include "tests/process/runtime/actor/crowd.hpp"

namespace troupe::test {
namespace {

/// Where the actors of a test share a process.
enum class Where { driver, labelled_process };

std::vector<ActorHandle<Member>> spawn_members(Cluster& cluster, Where where, int count) {
  std::vector<Future<ActorHandle<Member>>> spawning;
  for (int i = 0; i < count; ++i) {
    spawning.push_back(where == Where::driver ? cluster.spawn_local<Member>({})
                                              : cluster.spawn<Member>({.process = "crowd"}));
  }
  std::vector<ActorHandle<Member>> members;
  for (auto& one : spawning) members.push_back(must(one.get(limit)));
  return members;
}

/// Each member has the one behind it as its next.
void chain(const std::vector<ActorHandle<Member>>& members) {
  for (std::size_t i = 1; i < members.size(); ++i) {
    must(members[i - 1].call<&Member::set_next>(members[i]).get(limit));
  }
}

/// Stays in a method until it is let go. Its waits are not announced.
class Blocker {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int came = 0, ended = 0;
    bool may_go = false;

    template <class Is>
    bool wait_until(Is is) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, limit, is);
    }
    void let_go() {
      std::lock_guard lock(mutex);
      may_go = true;
      changed.notify_all();
    }
  };
  Blocker(ActorContext& /*context*/, std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ~Blocker() {
    std::lock_guard lock(shared_->mutex);
    ++shared_->ended;
    shared_->changed.notify_all();
  }
  int block() {
    std::unique_lock lock(shared_->mutex);
    ++shared_->came;
    shared_->changed.notify_all();
    shared_->changed.wait_for(lock, limit, [this] { return shared_->may_go; });
    return shared_->came;
  }

  using Arguments = troupe::Arguments<std::shared_ptr<Shared>>;
  using Methods = troupe::Methods<&Blocker::block>;
  static constexpr std::string_view actor_type = "Blocker";

 private:
  const std::shared_ptr<Shared> shared_;
};

class SharedThreads : public ::testing::TestWithParam<Where> {};

TEST_P(SharedThreads, are_few_however_many_actors_live) {
  const auto cluster = start_cluster();
  const int count = GetParam() == Where::driver ? 10000 : 1000;
  const auto first = spawn_members(*cluster, GetParam(), 1).front();
  const int before = must(first.call<&Member::threads>().get(limit));
  const auto members = spawn_members(*cluster, GetParam(), count);
  std::vector<Future<int>> answers;
  for (const auto& member : members) answers.push_back(member.call<&Member::depth>());
  for (auto& answer : answers) EXPECT_EQ(must(answer.get(limit)), 1);
  // A few more than there are CPUs: threads may have been found asleep, for a lock or for memory.
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_LE(must(first.call<&Member::threads>().get(limit)), before + cpus + 20);
}

TEST_P(SharedThreads, do_not_run_out_while_each_actor_of_a_chain_waits_for_the_next) {
  const auto cluster = start_cluster();
  const auto members = spawn_members(*cluster, GetParam(), 200);
  chain(members);
  EXPECT_EQ(must(members.front().call<&Member::depth>().get(limit)), 200);
}

TEST_P(SharedThreads, do_not_run_out_while_callers_wait_for_credits) {
  ClusterOptions options;
  options.calls.credits = 4;
  const auto cluster = start_cluster(std::move(options));
  const auto members = spawn_members(*cluster, GetParam(), 20);
  chain(members);
  constexpr int count = 300;
  std::vector<Future<int>> floods;
  for (std::size_t i = 0; i + 1 < members.size(); ++i) {
    floods.push_back(members[i].call<&Member::flood_next>(count));
  }
  for (auto& flood : floods) EXPECT_EQ(must(flood.get(limit)), 0) << "no call may fail";
  std::vector<int> expected;
  for (int i = 0; i < count; ++i) expected.push_back(i);
  for (std::size_t i = 1; i < members.size(); ++i) {
    EXPECT_EQ(must(members[i].call<&Member::notes>().get(limit)), expected);
  }
}

TEST_P(SharedThreads, serve_others_while_many_actors_always_have_calls) {
  const auto cluster = start_cluster();
  const auto members = spawn_members(*cluster, GetParam(), 64);
  for (std::size_t i = 1; i < members.size(); ++i) members[i].call<&Member::go_on_for_ever>();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(must(members.front().call<&Member::depth>().get(limit)), 1);
  }
  for (const auto& member : members) EXPECT_TRUE(cluster->stop(member, limit).ok());
}

INSTANTIATE_TEST_SUITE_P(Of, SharedThreads,
                         ::testing::Values(Where::driver, Where::labelled_process),
                         [](const auto& info) {
                           return info.param == Where::driver ? "the_driver" : "a_labelled_process";
                         });

TEST(LocalActors, get_the_calls_of_each_caller_in_order_one_at_a_time) {
  const auto cluster = start_cluster();
  const auto others = spawn_members(*cluster, Where::driver, 20);
  for (const auto& other : others) other.call<&Member::go_on_for_ever>();
  const auto member = spawn_members(*cluster, Where::driver, 1).front();
  constexpr int callers = 4, each = 3000;  // more than the credits
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      for (int i = 0; i < each; ++i) member.call<&Member::note>(caller * each + i);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto notes = must(member.call<&Member::notes>().get(limit));
  ASSERT_EQ(notes.size(), static_cast<std::size_t>(callers * each));
  std::vector<int> next(callers);
  for (const int note : notes) ASSERT_EQ(note % each, next.at(note / each)++);
  for (const auto& other : others) EXPECT_TRUE(cluster->stop(other, limit).ok());
}

TEST(LocalActors, may_wait_for_each_other_in_ways_that_the_runtime_does_not_see) {
  const auto cluster = start_cluster();
  const auto shared = std::make_shared<Blocker::Shared>();
  constexpr int count = 30;
  std::vector<Future<int>> answers;
  for (int i = 0; i < count; ++i) {
    const auto blocker = must(cluster->spawn_local<Blocker>({}, shared).get(limit));
    answers.push_back(blocker.call<&Blocker::block>());
  }
  EXPECT_TRUE(shared->wait_until([&] { return shared->came == count; }))
      << shared->came << " of " << count << " actors got a thread";
  shared->let_go();
  for (auto& answer : answers) EXPECT_EQ(must(answer.get(limit)), count);
}

TEST(LocalActors, that_are_stopped_in_a_method_finish_it_and_answer_no_later_call) {
  const auto cluster = start_cluster();
  const auto shared = std::make_shared<Blocker::Shared>();
  const auto blocker = must(cluster->spawn_local<Blocker>({}, shared).get(limit));
  auto running = blocker.call<&Blocker::block>();
  auto waiting = blocker.call<&Blocker::block>();
  ASSERT_TRUE(shared->wait_until([&] { return shared->came == 1; }));
  const auto late = cluster->stop(blocker, 50ms);
  EXPECT_EQ(late.error().code, ErrorCode::timed_out) << late.error().message;
  EXPECT_FALSE(waiting.ready());
  shared->let_go();
  EXPECT_EQ(must(running.get(limit)), 1);
  EXPECT_EQ(waiting.get(limit).error().code, ErrorCode::actor_died);
  EXPECT_TRUE(shared->wait_until([&] { return shared->ended == 1; })) << "it is not destroyed";
  EXPECT_TRUE(cluster->stop(blocker, limit).ok()) << "it is gone";
  EXPECT_EQ(blocker.call<&Blocker::block>().get(limit).error().code, ErrorCode::actor_died);
}

TEST(LocalActors, end_by_themselves_and_go_on_after_exceptions) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn_local<Counter>({}, 1).get(limit));
  EXPECT_EQ(counter.call<&Counter::throw_a_number>().get(limit).error().code, ErrorCode::exception);
  EXPECT_EQ(must(counter.call<&Counter::add>(1).get(limit)), 2);
  const auto member = spawn_members(*cluster, Where::driver, 1).front();
  Promise<ActorDown> ended;
  const auto token =
      cluster->watch(member, [ended](const ActorDown& down) { ended.complete(down); });
  EXPECT_TRUE(member.call<&Member::leave>().get(limit).ok());
  const auto down = must(ended.future().get(limit));
  EXPECT_EQ(down.cause, DownCause::exited);
  EXPECT_NE(down.message.find("had enough"), std::string::npos) << down.message;
}

TEST(LocalActors, have_one_thread_if_they_ask_for_it_and_else_any_of_the_pool) {
  const auto cluster = start_cluster();
  const auto other = must(cluster->spawn_local<Member>({}).get(limit));
  for (const bool is_local : {true, false}) {
    const auto member =
        must((is_local ? cluster->spawn_local<Member>({.dedicated_thread = true})
                       : cluster->spawn<Member>({.process = "p", .dedicated_thread = true}))
                 .get(limit));
    const int thread = must(member.call<&Member::thread>().get(limit));
    EXPECT_NE(thread, must(other.call<&Member::thread>().get(limit)));
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(must(member.call<&Member::thread>().get(limit)), thread);
    }
    EXPECT_TRUE(cluster->stop(member).ok());
  }
}

TEST(LocalActors, end_the_cluster_in_time_although_all_threads_wait) {
  auto cluster = start_cluster();
  const auto shared = std::make_shared<Blocker::Shared>();
  constexpr int count = 8;
  for (int i = 0; i < count; ++i) {
    must(cluster->spawn_local<Blocker>({}, shared).get(limit)).call<&Blocker::block>();
  }
  ASSERT_TRUE(shared->wait_until([&] { return shared->came == count; }));
  const auto begin = std::chrono::steady_clock::now();
  cluster->shutdown(100ms);
  cluster.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  shared->let_go();
  EXPECT_TRUE(shared->wait_until([&] { return shared->ended == count; }))
      << "actors that are left behind end once their methods do";
}

}  // namespace
}  // namespace troupe::test
