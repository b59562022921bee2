#include <atomic>
#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/unit/runtime/call/call_hubs.hpp"

namespace troupe {

TEST(Credits, bound_the_bytes_of_unanswered_calls_but_let_one_of_any_size_through) {
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credit_bytes = 1000, .credit_timeout = 50ms});
  const auto holder = std::make_shared<Holder>();
  server->add_target(7, holder);
  auto large = begin_call(*client, server->endpoint(), 7, Bytes(5000));
  IncomingCall held = holder->take();
  const auto refused = call(*client, server->endpoint(), 7, Bytes(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(refused.error().message.find("5000 bytes"), std::string::npos)
      << refused.error().message;
  held.answer(Bytes{});
  EXPECT_TRUE(large.get(10s).ok());
  server->remove_target(7);
  server->add_target(7, std::make_shared<Mirror>());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(call(*client, server->endpoint(), 7, Bytes(600)).ok()) << "credits come back";
  }
  for (const auto& hub : {server, client}) hub->stop();
}

TEST(Credits, are_not_enough_for_calls_to_a_process_that_reads_nothing) {
  UnixTransport::Options narrow;
  narrow.max_queued_bytes = std::size_t{1} << 20;
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credit_timeout = 50ms}, narrow);
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, std::make_shared<Mirror>());
  // The server's thread, which reads, is blocked by an answer of its own.
  client->add_target(8, std::make_shared<Mirror>());
  std::latch busy(1), go_on(1);
  server->call({8, client->endpoint(), "mirror", "Mirror"}, 0, {}, [&](const Result<Bytes>&) {
    busy.count_down();
    go_on.wait();
  });
  busy.wait();
  const Bytes large(std::size_t{512} << 10, std::byte{3});
  std::vector<Future<Bytes>> sent;
  std::optional<Error> refusal;
  const auto start = std::chrono::steady_clock::now();
  while (!refusal && sent.size() < 100) {
    auto answer = begin_call(*client, server->endpoint(), 7, large);
    if (answer.ready()) {
      refusal = answer.get(0s).error();
    } else {
      sent.push_back(std::move(answer));
    }
  }
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, ErrorCode::resource_exhausted) << refusal->message;
  EXPECT_NE(refusal->message.find("1048576"), std::string::npos) << refusal->message;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "credit_timeout counts";
  const auto small = begin_call(*client, server->endpoint(), 6, Bytes(1)).get(10s);
  ASSERT_FALSE(small.ok()) << "calls to all actors of the process share the link";
  EXPECT_EQ(small.error().code, ErrorCode::resource_exhausted) << small.error().message;
  go_on.count_down();
  for (auto& answer : sent) EXPECT_TRUE(answer.get(10s).ok());
  EXPECT_TRUE(call(*client, server->endpoint(), 7, large).ok());
  for (const auto& hub : {server, client}) hub->stop();
}

/// Answers calls with their arguments, on a thread of its own.
class AnsweringThread final : public CallTarget {
 public:
  void deliver(IncomingCall call) override {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !calls_.empty(); })) {
      IncomingCall call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call.answer(std::move(call.arguments));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<IncomingCall> calls_;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

TEST(Credits, that_come_back_are_all_used_by_callers_of_any_bytes) {
  const CallHub::Options few{.credits = 4, .credit_bytes = 1000, .credit_timeout = 60s};
  const auto server = make_hub("server", Key{}, {}, few);
  const auto client = make_hub("client", Key{}, {}, few);
  const auto answering = std::make_shared<AnsweringThread>();
  server->add_target(7, answering);
  for (CallHub* caller : {client.get(), server.get()}) {  // over a link, and within the process
    std::atomic<int> answered = 0;
    std::vector<std::jthread> threads;
    for (const std::size_t bytes : {10, 990, 400, 700, 1, 2000, 10, 10, 500, 500, 900, 3}) {
      threads.emplace_back([&, bytes] {
        for (int i = 0; i < 300; ++i) {
          if (call(*caller, server->endpoint(), 7, Bytes(bytes)).ok()) ++answered;
        }
      });
    }
    const auto start = std::chrono::steady_clock::now();
    threads.clear();
    EXPECT_EQ(answered, 12 * 300);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s) << "nobody sleeps over a credit";
  }
  for (const auto& hub : {server, client}) hub->stop();
}

/// How often threads of this process have begun to wait.
long waits_so_far() {
  rusage use{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &use), 0);
  return use.ru_nvcsw;
}

TEST(Credits, that_come_back_wake_nobody_who_waits_for_another_actor) {
  constexpr int waiting = 300, calls = 2000;
  const auto server = make_hub("server", Key{});
  const auto client = make_hub("client", Key{}, {}, {.credits = 1, .credit_timeout = 60s});
  server->add_target(6, std::make_shared<Mirror>());
  server->add_target(7, std::make_shared<Holder>());
  (void)begin_call(*client, server->endpoint(), 7, {});  // has the only credit
  std::latch begun(waiting + 1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiting; ++i) {
    threads.emplace_back([&] {
      begun.count_down();
      (void)begin_call(*client, server->endpoint(), 7, {});
    });
  }
  begun.arrive_and_wait();
  const long before = waits_so_far();
  for (int i = 0; i < calls; ++i) {
    EXPECT_TRUE(call(*client, server->endpoint(), 6, {}).ok());
  }
  EXPECT_LT((waits_so_far() - before) / calls, waiting / 10) << "for each call";
  for (const auto& hub : {client, server}) hub->stop();
}

TEST(Credits, outlive_the_target_in_this_process_that_they_were_taken_for) {
  const auto hub = make_hub("hub", Key{}, {}, {.credits = 1, .credit_timeout = 50ms});
  const auto holder = std::make_shared<Holder>();
  hub->add_target(7, holder);
  auto first = begin_call(*hub, hub->endpoint(), 7, {});
  const IncomingCall held = holder->take();
  hub->remove_target(7);
  hub->add_target(7, std::make_shared<Mirror>());  // as after a restart here
  const auto refused = call(*hub, hub->endpoint(), 7, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
  held.answer(encode(1));
  EXPECT_TRUE(first.get(10s).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(call(*hub, hub->endpoint(), 7, {}).ok());
  hub->stop();
}

}  // namespace troupe
