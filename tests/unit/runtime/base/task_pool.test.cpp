#include "runtime/base/task_pool.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A bound for waits that end at once when all is well.
constexpr auto limit = 20s;

class Task final : public PoolTask {
 public:
  explicit Task(std::function<void()> what) : what_(std::move(what)) {}
  void run_task() noexcept override { what_(); }

 private:
  const std::function<void()> what_;
};

/// A number that threads wait for; waits are announced.
class Count {
 public:
  void add(int amount = 1) {
    std::lock_guard lock(mutex_);
    value_ += amount;
    changed_.notify_all();
  }
  int value() {
    std::lock_guard lock(mutex_);
    return value_;
  }
  bool wait_for_value(int least) {
    std::unique_lock lock(mutex_);
    return wait_for(changed_, lock, limit, [&] { return value_ >= least; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int value_ = 0;
};

void submit(TaskPool& pool, std::function<void()> what) {
  pool.submit(std::make_shared<Task>(std::move(what)));
}

/// Tasks refer to what a test holds, so it stops the pool before its end.
std::unique_ptr<TaskPool> start(TaskPool::Options options) {
  auto pool = std::make_unique<TaskPool>(std::move(options));
  if (auto started = pool->start(); !started.ok()) {
    throw std::runtime_error(started.error().message);
  }
  return pool;
}

template <class Is>
bool comes_true(Is is) {
  for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::yield()) {
    if (is()) return true;
  }
  return false;
}

TEST(TaskPool, runs_tasks_in_the_order_of_their_submission) {
  const auto pool = start({.parallel = 1});
  std::vector<int> order, expected;
  Count done;
  for (int i = 0; i < 1000; ++i) {
    expected.push_back(i);
    submit(*pool, [&, i] {
      order.push_back(i);
      done.add();
    });
  }
  ASSERT_TRUE(done.wait_for_value(1000));
  EXPECT_EQ(order, expected);
  EXPECT_EQ(pool->counts().threads, 1U);
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, runs_no_more_tasks_at_a_time_than_asked_for) {
  const auto pool = start({.parallel = 3});
  std::atomic<int> now = 0, most = 0;
  Count done;
  for (int i = 0; i < 200; ++i) {
    submit(*pool, [&] {
      const int with_this = ++now;
      for (int seen = most; seen < with_this && !most.compare_exchange_weak(seen, with_this);) {
      }
      for (const auto end = Clock::now() + 1ms; Clock::now() < end;) {
      }
      --now;
      done.add();
    });
  }
  ASSERT_TRUE(done.wait_for_value(200));
  EXPECT_LE(most, 3);
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, gives_the_place_of_a_thread_that_waits_to_another_and_shrinks_afterwards) {
  constexpr int length = 200;
  const auto pool = start({.parallel = 2, .idle_limit = 50ms});
  Count ended;
  // Each task of the chain submits the next one and waits for its end.
  std::function<void(int)> link = [&](int left) {
    if (left > 0) {
      submit(*pool, [&, left] { link(left - 1); });
      EXPECT_TRUE(ended.wait_for_value(left));
    }
    ended.add();
  };
  const auto begin = Clock::now();
  submit(*pool, [&] { link(length); });
  ASSERT_TRUE(ended.wait_for_value(length + 1));
  EXPECT_LT(Clock::now() - begin, 5s) << "waits are announced, so none has to be found";
  EXPECT_TRUE(comes_true([&] { return pool->counts().threads == 2; })) << pool->counts().threads;
  EXPECT_EQ(pool->counts().queued, 0U);
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, finds_threads_that_wait_without_saying_so) {
  constexpr int count = 40;
  const auto pool = start({.parallel = 2});
  std::mutex mutex;
  std::condition_variable all_came;
  int came = 0;
  Count done;
  for (int i = 0; i < count; ++i) {
    submit(*pool, [&] {
      std::unique_lock lock(mutex);
      if (++came == count) all_came.notify_all();
      if (all_came.wait_for(lock, limit, [&] { return came == count; })) done.add();
    });
  }
  EXPECT_TRUE(done.wait_for_value(count)) << came << " of " << count << " tasks began";
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, gives_others_a_turn_while_a_task_computes_for_seconds) {
  const auto pool = start({.parallel = 1});
  std::atomic<bool> other_ran = false;
  Count done;
  submit(*pool, [&] {
    for (const auto end = Clock::now() + limit; !other_ran && Clock::now() < end;) {
    }
    done.add();
  });
  submit(*pool, [&] { other_ran = true; });
  ASSERT_TRUE(done.wait_for_value(1));
  EXPECT_TRUE(other_ran);
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, has_at_most_max_threads_and_goes_on_when_they_come_back) {
  const auto pool = start({.parallel = 2, .max_threads = 5});
  Count begun, go_on, done;
  for (int i = 0; i < 20; ++i) {
    submit(*pool, [&] {
      begun.add();
      EXPECT_TRUE(go_on.wait_for_value(1));
      done.add();
    });
  }
  ASSERT_TRUE(begun.wait_for_value(5));
  std::this_thread::sleep_for(50ms);  // more would begin now
  EXPECT_EQ(begun.value(), 5);
  EXPECT_EQ(pool->counts().threads, 5U);
  EXPECT_EQ(pool->counts().queued, 15U);
  go_on.add();
  EXPECT_TRUE(done.wait_for_value(20));
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, counts_a_thread_that_waits_once_however_many_scopes_it_is_in) {
  const auto pool = start({.parallel = 2});
  Count waits, go_on, done;
  submit(*pool, [&] {
    const BlockingScope outer;
    {
      const BlockingScope inner;
    }
    waits.add();
    while (go_on.value() == 0) std::this_thread::yield();
    done.add();
  });
  ASSERT_TRUE(waits.wait_for_value(1));
  // Another thread may have been started meanwhile, and finds nothing to do.
  EXPECT_TRUE(comes_true([&] { return pool->counts().running == 0; }));
  go_on.add();
  ASSERT_TRUE(done.wait_for_value(1));
  EXPECT_TRUE(comes_true([&] { return pool->counts().idle == pool->counts().threads; }));
  EXPECT_EQ(pool->counts().running, 0U);
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, starts_threads_that_inherit_nothing_of_those_who_submit) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "needs two CPUs";
  const auto pool = start({.parallel = 4, .name = "swimmers"});
  std::mutex mutex;
  std::vector<int> cpus;
  Count begun;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 4; ++i) {
      submit(*pool, [&] {
        cpu_set_t own;
        ::sched_getaffinity(0, sizeof own, &own);
        char name[16] = {};
        ::pthread_getname_np(::pthread_self(), name, sizeof name);
        EXPECT_STREQ(name, "swimmers");
        {
          std::lock_guard lock(mutex);
          cpus.push_back(CPU_COUNT(&own));
        }
        begun.add();
        EXPECT_TRUE(begun.wait_for_value(4)) << "each on a thread of its own";
      });
    }
  }).join();
  ASSERT_TRUE(begun.wait_for_value(4));
  std::lock_guard lock(mutex);
  EXPECT_EQ(cpus, std::vector<int>(4, CPU_COUNT(&all)));
  EXPECT_TRUE(pool->stop(limit));
}

TEST(TaskPool, runs_what_is_queued_before_it_stops) {
  const auto pool = start({.parallel = 2});
  std::atomic<int> ran = 0;
  for (int i = 0; i < 100; ++i) submit(*pool, [&] { ++ran; });
  EXPECT_TRUE(pool->stop(limit));
  EXPECT_EQ(ran, 100);
  EXPECT_EQ(pool->counts().threads, 0U);
  submit(*pool, [&] { ++ran; });
  EXPECT_EQ(ran, 101) << "it runs at once";
}

TEST(TaskPool, leaves_tasks_behind_that_do_not_end_in_time) {
  const auto begun = std::make_shared<Count>(), go_on = std::make_shared<Count>(),
             ended = std::make_shared<Count>();
  auto pool = start({.parallel = 1});
  submit(*pool, [=] {
    begun->add();
    EXPECT_TRUE(go_on->wait_for_value(1));
    ended->add();
  });
  ASSERT_TRUE(begun->wait_for_value(1));
  EXPECT_FALSE(pool->stop(20ms));
  submit(*pool, [=] { ended->add(); });
  EXPECT_TRUE(ended->wait_for_value(1)) << "the other one waits, so a thread was started";
  pool.reset();
  go_on->add();
  EXPECT_TRUE(ended->wait_for_value(2));
}

TEST(TaskPool, survives_submissions_waits_and_ends_of_many_threads_at_once) {
  const auto pool = start({.parallel = 3, .max_threads = 16, .idle_limit = 1ms});
  constexpr int submitters = 4, each = 2000;
  Count done;
  std::atomic<int> turn = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < submitters; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < each; ++j) {
        submit(*pool, [&] {
          if (++turn % 16 == 0) {
            const BlockingScope waits;
            std::this_thread::sleep_for(100us);
          }
          done.add();
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(done.wait_for_value(submitters * each));
  EXPECT_TRUE(pool->stop(limit));
}

}  // namespace
}  // namespace troupe
