#include "tests/unit/runtime/task/simulated_workers.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

TEST(TaskScheduler, starts_as_many_workers_as_there_are_tasks_and_cpus) {
  SimulatedWorkers sim({2, 1});
  sim.submit();
  EXPECT_EQ(sim.workers.size(), 1U);
  for (int i = 0; i < 10; ++i) sim.submit();
  EXPECT_EQ(sim.workers.size(), 3U);
  sim.run_all();
  EXPECT_EQ(sim.workers.size(), 3U) << "they stay warm";
  EXPECT_EQ(sim.scheduler.counts().idle_workers, 3U);
  EXPECT_EQ(sim.rooms.free, sim.rooms.whole) << "what idles holds nothing";
}

TEST(TaskScheduler, gives_one_task_at_a_time_until_it_knows_how_long_they_take) {
  SimulatedWorkers sim({1});
  for (int i = 0; i < 1000; ++i) sim.submit();
  sim.start_all();
  EXPECT_EQ(sim.workers.at(1).tasks.size(), 1U);
  sim.finish(1, 1, 10us);
  EXPECT_EQ(sim.workers.at(1).tasks.size(), 200U) << "2 ms of work";
  SimulatedWorkers slow({1});
  for (int i = 0; i < 1000; ++i) slow.submit();
  slow.start_all();
  slow.finish(1, 1, 50ms);
  EXPECT_EQ(slow.workers.at(1).tasks.size(), 1U);
}

TEST(TaskScheduler, shares_a_short_queue_among_workers) {
  SimulatedWorkers sim({2});
  for (int i = 0; i < 12; ++i) sim.submit();
  sim.start_all();
  sim.finish(1, 1, 10us);
  EXPECT_EQ(sim.workers.at(1).tasks.size(), 5U) << "of the 10 that are queued";
}

TEST(TaskScheduler, gives_what_a_slow_worker_returns_to_another) {
  SimulatedWorkers sim({2});
  sim.submit();
  sim.start_all();
  sim.finish(1, 1, 10us);
  sim.submit();
  sim.submit();
  sim.start_all();
  for (int i = 0; i < 64; ++i) sim.submit();
  const std::size_t held = sim.workers.at(1).tasks.size();
  ASSERT_GT(held, 1U);
  sim.give_back(1, false);
  for (int i = 0; i < 200 && !sim.workers.at(2).tasks.empty(); ++i) sim.finish(2, 8, 80us);
  EXPECT_EQ(sim.scheduler.counts().tasks, 1U) << "all but the slow one";
  EXPECT_EQ(sim.workers.at(1).tasks.size(), 1U) << "nothing more is put behind it";
}

TEST(TaskScheduler, lets_others_run_while_a_task_waits) {
  SimulatedWorkers sim({1});
  sim.submit();
  sim.start_all();
  sim.submit();  // that which the first waits for
  EXPECT_EQ(sim.workers.size(), 1U);
  sim.give_back(1, true);
  ASSERT_EQ(sim.workers.size(), 2U);
  sim.start_all();
  sim.finish(2, 1, 10us);
  EXPECT_EQ(sim.answers[1].size(), 1U);
  sim.finish(1, 1, 10ms);
  EXPECT_EQ(sim.answers[0].size(), 1U);
  EXPECT_EQ(sim.rooms.free, sim.rooms.whole);
}

TEST(TaskScheduler, charges_a_death_only_to_a_task_that_was_alone) {
  SimulatedWorkers sim({1});
  sim.submit();
  sim.start_all();
  sim.finish(1, 1, 10us);
  const auto first = sim.answers.size();
  for (int i = 0; i < 40; ++i) sim.submit(1, "", 1);
  sim.finish(1, 1, 10us);
  ASSERT_GT(sim.workers.at(1).tasks.size(), 1U);
  sim.lose(1);
  sim.start_all();
  EXPECT_EQ(sim.workers.begin()->second.tasks.size(), 1U) << "each alone";
  sim.lose(sim.workers.begin()->first);
  sim.start_all();
  sim.lose(sim.workers.begin()->first);  // the same task again
  sim.run_all();
  std::size_t failed = 0;
  for (std::size_t i = first; i < sim.answers.size(); ++i) {
    ASSERT_EQ(sim.answers[i].size(), 1U);
    failed += sim.answers[i][0] == ErrorCode::actor_died ? 1 : 0;
  }
  EXPECT_EQ(failed, 1U);
}

TEST(TaskScheduler, never_runs_a_task_twice_that_may_not_be_retried) {
  SimulatedWorkers sim({1});
  sim.submit(1, "", 0);
  sim.start_all();
  sim.lose(1);
  ASSERT_EQ(sim.answers[0].size(), 1U);
  EXPECT_EQ(sim.answers[0][0], ErrorCode::actor_died);
  EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
}

TEST(TaskScheduler, refuses_what_no_node_has_and_waits_for_what_others_hold) {
  SimulatedWorkers sim({2});
  sim.submit(3);
  ASSERT_EQ(sim.answers[0].size(), 1U);
  EXPECT_EQ(sim.answers[0][0], ErrorCode::unschedulable);
  sim.rooms.free[0] = 0;  // an actor's
  sim.submit(2);
  EXPECT_TRUE(sim.workers.empty());
  sim.rooms.free[0] = 2;
  sim.scheduler.on_room(sim.now);
  sim.obey();
  sim.run_all();
  EXPECT_EQ(sim.answers[1].size(), 1U);
}

TEST(TaskScheduler, starts_a_worker_again_that_died_at_its_start_but_not_for_ever) {
  SimulatedWorkers sim({1});
  sim.submit();
  const Error died = fail(ErrorCode::actor_died, "its node is gone");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(sim.workers.size(), 1U);
    EXPECT_TRUE(sim.answers[0].empty());
    const TaskWorkerId worker = sim.workers.begin()->first;
    sim.workers.clear();
    sim.scheduler.on_start_failed(worker, died, sim.now);
    sim.obey();
  }
  EXPECT_TRUE(sim.workers.empty());
  EXPECT_EQ(sim.answers[0], std::vector{std::optional(ErrorCode::actor_died)});

  sim.submit(1, "0");
  sim.rooms.whole[0] = sim.rooms.free[0] = 0;  // the node is gone
  sim.rooms.free[0] = -1;                      // which it gives back
  sim.scheduler.on_start_failed(sim.workers.begin()->first, died, sim.now);
  sim.obey();
  EXPECT_EQ(sim.answers[1], std::vector{std::optional(ErrorCode::unschedulable)});
}

TEST(TaskScheduler, drops_cancelled_tasks_that_are_queued_and_tells_the_worker_of_others) {
  SimulatedWorkers sim({1});
  const TaskId running = sim.submit(1, "", 3, sim.now + 1s), queued = sim.submit();
  sim.start_all();
  for (const TaskId task : {running, queued}) {
    EXPECT_TRUE(sim.scheduler.cancel(task));
    EXPECT_FALSE(sim.scheduler.cancel(task));
  }
  auto orders = sim.scheduler.take_orders();
  ASSERT_EQ(orders.cancels.size(), 1U);
  EXPECT_EQ(orders.cancels[0].task, running);
  EXPECT_EQ(orders.cancels[0].worker, sim.workers.begin()->first);
  for (auto& [done, answer] : orders.answers) done(std::move(answer));
  for (const auto& answer : sim.answers) {
    ASSERT_EQ(answer.size(), 1U) << "at once";
    EXPECT_EQ(answer[0], ErrorCode::cancelled);
  }
  EXPECT_EQ(sim.scheduler.counts().tasks, 1U) << "the one that runs";
  sim.now += 2s;  // after its time
  sim.scheduler.on_time(sim.now);
  sim.run_all();
  EXPECT_EQ(sim.answers[0].size(), 1U);
  EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
}

TEST(TaskScheduler, does_not_run_cancelled_tasks_again) {
  SimulatedWorkers sim({1});
  const TaskId task = sim.submit();
  sim.start_all();
  EXPECT_TRUE(sim.scheduler.cancel(task));
  sim.obey();
  sim.lose(sim.workers.begin()->first);
  EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
  EXPECT_TRUE(sim.workers.empty());
}

TEST(TaskScheduler, answers_what_is_late_and_forgets_it) {
  SimulatedWorkers sim({1});
  sim.submit(1, "", 3, sim.now + 10ms);
  sim.submit(1, "", 3, sim.now + 20ms);
  sim.start_all();
  EXPECT_EQ(sim.scheduler.next_due(), sim.now + 10ms);
  sim.now += 30ms;
  sim.scheduler.on_time(sim.now);
  sim.obey();
  for (const auto& answer : sim.answers) {
    ASSERT_EQ(answer.size(), 1U);
    EXPECT_EQ(answer[0], ErrorCode::timed_out);
  }
  EXPECT_EQ(sim.scheduler.counts().tasks, 1U) << "the one that runs";
  sim.finish(1, 1, 1ms);
  EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
  EXPECT_EQ(sim.answers[0].size(), 1U) << "its answer comes too late";
}

TEST(TaskScheduler, answers_a_task_that_sees_the_end_of_its_time_first_with_that) {
  SimulatedWorkers sim({1});
  const TaskId task = sim.submit(1, "", 3, sim.now + 10ms);
  sim.start_all();
  sim.now += 10ms;
  TaskReport report{.worker = sim.workers.begin()->first};
  report.answers.push_back(
      TaskReport::Answer::of(task, Error{ErrorCode::cancelled, "it was cancelled"}));
  sim.scheduler.on_report(std::move(report), sim.now);
  for (auto& [done, answer] : sim.scheduler.take_orders().answers) done(std::move(answer));
  ASSERT_EQ(sim.answers[0].size(), 1U);
  EXPECT_EQ(sim.answers[0][0], ErrorCode::timed_out);
}

TEST(TaskScheduler, ends_idle_workers_but_one) {
  SimulatedWorkers sim({4});
  for (int i = 0; i < 4; ++i) sim.submit();
  sim.run_all();
  EXPECT_EQ(sim.workers.size(), 4U);
  sim.now += 61s;
  sim.scheduler.on_time(sim.now);
  sim.obey();
  EXPECT_EQ(sim.workers.size(), 1U);
}

TEST(TaskScheduler, ends_no_idle_workers_that_have_objects) {
  SimulatedWorkers sim({4});
  for (int i = 0; i < 4; ++i) sim.submit();
  sim.run_all();
  const auto report = [&](bool has_objects) {
    for (const auto& [id, worker] : sim.workers) {
      sim.scheduler.on_report({.worker = id, .has_objects = has_objects}, sim.now);
    }
    sim.now += 61s;
    sim.scheduler.on_time(sim.now);
    sim.obey();
  };
  report(true);
  EXPECT_EQ(sim.workers.size(), 4U);
  EXPECT_FALSE(sim.scheduler.next_due()) << "it is not looked at all the time";
  report(false);
  EXPECT_EQ(sim.workers.size(), 1U);
}

TEST(TaskScheduler, does_not_let_one_kind_of_task_keep_all_cpus) {
  SimulatedWorkers sim({1});
  for (int i = 0; i < 100; ++i) sim.submit(1, "0");
  sim.start_all();
  sim.submit(1, "");  // another shape
  for (int i = 0; i < 30 && sim.answers.back().empty(); ++i) sim.finish(1, 1, 5ms);
  EXPECT_FALSE(sim.answers.back().empty()) << "it waits behind all of the others";
}

/// Random events: each task is answered once, rooms are never overbooked, and nothing is left.
TEST(TaskScheduler, answers_each_task_once_whatever_happens) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int below) {
      return std::uniform_int_distribution<int>(0, below - 1)(random);
    };
    SimulatedWorkers sim({1 + pick(3), 1 + pick(3)});
    std::vector<TaskId> ids;
    for (int step = 0; step < 1500 && !::testing::Test::HasFatalFailure(); ++step) {
      std::vector<TaskWorkerId> there, unstarted;
      for (const auto& [id, worker] : sim.workers)
        (worker.is_started ? there : unstarted).push_back(id);
      const auto one_of = [&](const std::vector<TaskWorkerId>& some) {
        return some[static_cast<std::size_t>(pick(static_cast<int>(some.size())))];
      };
      const int event = pick(100);
      if (event < 45) {
        const auto late = pick(10) == 0
                              ? std::optional(sim.now + std::chrono::milliseconds(pick(50)))
                              : std::nullopt;
        ids.push_back(sim.submit(pick(4), pick(4) == 0 ? std::to_string(pick(2)) : "", pick(3),
                                 late, seed % 2 == 0 ? pick(40) : 0));
      } else if (event < 60) {
        if (!unstarted.empty()) sim.start(one_of(unstarted));
      } else if (event < 84) {
        if (!there.empty()) {
          sim.finish(one_of(there), static_cast<std::size_t>(pick(20)),
                     std::chrono::microseconds(1 + pick(3000)));
        }
      } else if (event < 90) {
        if (!there.empty()) {
          const auto id = one_of(there);
          if (!sim.workers.at(id).tasks.empty()) sim.give_back(id, pick(2) == 0);
        }
      } else if (event < 93) {
        if (!there.empty()) sim.lose(one_of(there));
      } else if (event < 94) {
        if (!unstarted.empty()) {
          const auto id = one_of(unstarted);
          sim.workers.erase(id);
          sim.scheduler.on_start_failed(id, fail(ErrorCode::resource_exhausted, "no room"),
                                        sim.now);
          sim.obey();
        }
      } else if (event < 97) {
        if (!ids.empty()) {
          (void)sim.scheduler.cancel(
              ids[static_cast<std::size_t>(pick(static_cast<int>(ids.size())))]);
          sim.obey();
        }
      } else {
        sim.now += std::chrono::milliseconds(pick(30));
        sim.scheduler.on_time(sim.now);
        sim.obey();
      }
      for (std::size_t i = 0; i < sim.rooms.free.size(); ++i) {
        ASSERT_GE(sim.rooms.free[i], 0) << "seed " << seed;
        ASSERT_LE(sim.rooms.free[i], sim.rooms.whole[i]) << "seed " << seed;
      }
    }
    sim.run_all();
    for (std::size_t i = 0; i < sim.answers.size(); ++i) {
      ASSERT_EQ(sim.answers[i].size(), 1U) << "task " << i << ", seed " << seed;
    }
    EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
    EXPECT_EQ(sim.scheduler.counts().bytes, 0U);
    EXPECT_EQ(sim.rooms.free, sim.rooms.whole) << "seed " << seed;
  }
}

/// A decision takes constant time: a reservation for each lease, none for each task.
TEST(TaskScheduler, reserves_for_leases_and_not_for_tasks) {
  SimulatedWorkers sim({2});
  for (int i = 0; i < 10000; ++i) sim.submit();
  sim.run_all();
  EXPECT_LT(sim.rooms.reserves, 100U);
}

TEST(TaskScheduler, looks_at_few_of_a_thousand_shapes_when_something_happens) {
  SimulatedWorkers sim({1});
  sim.submit();
  sim.start_all();
  for (int i = 1; i <= 1000; ++i) sim.submit_shape(1, i);
  EXPECT_LE(sim.rooms.reserves, 1002U) << "one look at each that comes";
  sim.rooms.reserves = 0;
  for (int i = 0; i < 1000; ++i) sim.scheduler.on_room(sim.now);
  EXPECT_LE(sim.rooms.reserves, 10'000U);
  sim.rooms.reserves = 0;
  EXPECT_LE(sim.look_around(), 16);
  EXPECT_LE(sim.rooms.reserves, 1000U) << "one look at each for all that has happened";
  EXPECT_FALSE(sim.scheduler.next_look());
  sim.run_all();
  EXPECT_EQ(sim.scheduler.counts().tasks, 0U);
}

TEST(TaskScheduler, finds_the_shape_that_fits_behind_a_thousand_that_do_not) {
  SimulatedWorkers sim({4});
  sim.rooms.free[0] = 1;  // actors have the others
  sim.submit();
  sim.start_all();
  for (int i = 1; i <= 1000; ++i) sim.submit_shape(2, i);
  sim.submit_shape(1, 1001);
  sim.finish(1, 1, 10us);  // nothing else happens
  EXPECT_LE(sim.look_around(), 16);
  EXPECT_EQ(sim.workers.at(1).tasks.size(), 1U);
}

TEST(TaskScheduler, tries_a_start_again_that_failed_while_room_was_made) {
  SimulatedWorkers sim({1});
  sim.submit();
  ASSERT_EQ(sim.workers.size(), 1U);
  sim.scheduler.on_room(sim.now);
  sim.workers.erase(1);
  sim.scheduler.on_start_failed(1, fail(ErrorCode::resource_exhausted, "no room"), sim.now);
  sim.look_around();
  EXPECT_EQ(sim.workers.size(), 1U);
  sim.workers.erase(2);
  sim.scheduler.on_start_failed(2, fail(ErrorCode::resource_exhausted, "no room"), sim.now);
  sim.look_around();
  EXPECT_TRUE(sim.workers.empty()) << "not before something happens";
}

}  // namespace
}  // namespace troupe::test
