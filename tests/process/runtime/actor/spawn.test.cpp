#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {

TEST(Spawn, places_actors_and_tells_them_node_and_devices) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {0, 1}}, {"right", 2, {4, 7}}};
  const auto cluster = start_cluster(std::move(options));
  const auto a =
      must(cluster->spawn<Insider>({.resources = {.cpus = 1, .devices = 1}, .node = "right"})
               .get(limit));
  const auto b =
      must(cluster->spawn<Insider>({.resources = {.cpus = 1, .devices = 1}, .node = "right"})
               .get(limit));
  EXPECT_EQ(must(a.call<&Insider::node>().get(limit)), "right");
  EXPECT_EQ(must(a.call<&Insider::devices>().get(limit)), std::vector<int>{4});
  EXPECT_EQ(must(b.call<&Insider::devices>().get(limit)), std::vector<int>{7});
  const auto refused =
      cluster->spawn<Insider>({.resources = {.devices = 1}, .node = "right"}).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted) << refused.error().message;
  ASSERT_TRUE(cluster->stop(a).ok());
  const auto again =
      must(cluster->spawn<Insider>({.resources = {.devices = 1}, .node = "right"}).get(limit));
  EXPECT_EQ(must(again.call<&Insider::devices>().get(limit)), std::vector<int>{4})
      << "a stopped actor's device is free";
}

TEST(Spawn, shows_a_process_of_its_own_only_its_actor_s_devices) {
  ASSERT_EQ(::unsetenv("CUDA_VISIBLE_DEVICES"), 0);
  const auto seen = [](Cluster& cluster, const SpawnOptions& options) {
    const auto actor = must(cluster.spawn<Insider>(options).get(limit));
    return must(actor.call<&Insider::visible_devices>().get(limit));
  };
  ClusterOptions options;
  options.nodes = {{"node", 8, {0, 1, 2, 3, 4, 5, 6, 7}}};
  {
    const auto cluster = start_cluster(options);
    EXPECT_EQ(seen(*cluster, {}), "not set");
    EXPECT_EQ(seen(*cluster, {.resources = {.devices = 2}}), "0,1");
    EXPECT_EQ(seen(*cluster, {.resources = {.devices = 1}, .hides_other_devices = false}),
              "not set");
    EXPECT_EQ(seen(*cluster, {.resources = {.devices = 1}, .process = "shared"}), "not set");
    const auto group =
        must(cluster->create_placement_group({"", {{.devices = 1}, {.devices = 3}}}));
    EXPECT_EQ(seen(*cluster, {.resources = {.devices = 2}, .bundle = group.bundle(1)}), "5,6");
  }
  ASSERT_EQ(::setenv("CUDA_VISIBLE_DEVICES", "6,7", 1), 0);
  const auto cluster = start_cluster(options);  // its agent sees two
  ASSERT_EQ(::unsetenv("CUDA_VISIBLE_DEVICES"), 0);
  EXPECT_EQ(seen(*cluster, {}), "6,7");
  EXPECT_EQ(seen(*cluster, {.resources = {.devices = 1}}), "6");
  const auto refused = cluster->spawn<Insider>({.resources = {.devices = 3}}).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument) << refused.error().message;
}

TEST(Spawn, gives_actors_a_process_of_their_own_or_a_shared_one) {
  const auto cluster = start_cluster();
  const auto a = must(cluster->spawn<Insider>({.process = "together"}).get(limit));
  const auto b = must(cluster->spawn<Insider>({.process = "together"}).get(limit));
  const auto c = must(cluster->spawn<Insider>({}).get(limit));
  const int pid = must(a.call<&Insider::pid>().get(limit));
  EXPECT_EQ(must(b.call<&Insider::pid>().get(limit)), pid);
  EXPECT_NE(must(c.call<&Insider::pid>().get(limit)), pid);
  EXPECT_NE(pid, ::getpid());
  ASSERT_TRUE(cluster->stop(a).ok());
  EXPECT_EQ(must(b.call<&Insider::pid>().get(limit)), pid)
      << "the other actor of the process lives on";
}

TEST(Spawn, tells_why_an_actor_of_the_same_process_has_ended) {
  const auto cluster = start_cluster();
  const auto stays = must(cluster->spawn<Insider>({.process = "together"}).get(limit));
  const auto goes =
      must(cluster->spawn<Insider>({.name = "quitter", .process = "together"}).get(limit));
  const auto elsewhere = must(cluster->spawn<Insider>({}).get(limit));
  auto ended = elsewhere.call<&Insider::end_of>(goes);
  goes.call<&Insider::leave>("it has seen enough");
  ASSERT_TRUE(ended.get(limit).ok());
  const auto pid = stays.call<&Insider::pid_of>(goes).get(limit);
  ASSERT_FALSE(pid.ok());
  EXPECT_EQ(pid.error().code, ErrorCode::actor_died);
  EXPECT_NE(pid.error().message.find("it has seen enough"), std::string::npos)
      << pid.error().message;
}

TEST(Spawn, reports_why_an_actor_cannot_be_made) {
  const auto cluster = start_cluster();
  const auto broken = cluster->spawn<Fragile>({.name = "f"}, "no weights").get(limit);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::corrupt_data);
  EXPECT_NE(broken.error().message.find("no weights"), std::string::npos) << broken.error().message;
  const auto whole = must(cluster->spawn<Fragile>({.name = "f"}, "").get(limit));
  EXPECT_EQ(must(whole.call<&Fragile::answer>().get(limit)), 42) << "the name is free again";
  EXPECT_EQ(cluster->spawn<Fragile>({.name = "f"}, "").get(limit).error().code,
            ErrorCode::already_exists);
  EXPECT_EQ(cluster->spawn<Fragile>({.node = "nowhere"}, "").get(limit).error().code,
            ErrorCode::not_found);
}

TEST(Spawn, reports_exceptions_of_the_making_whatever_they_are) {
  const auto cluster = start_cluster();
  const auto thrown = cluster->spawn<Fragile>({}, "throw").get(limit);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::exception);
  EXPECT_NE(thrown.error().message.find("create throws"), std::string::npos)
      << thrown.error().message;
  EXPECT_EQ(cluster->spawn<Fragile>({}, "throw a number").get(limit).error().code,
            ErrorCode::exception);
  EXPECT_EQ(cluster->spawn_local<Fragile>({}, "throw a number").get(limit).error().code,
            ErrorCode::exception);
}

TEST(Spawn, refuses_arguments_that_no_agent_would_pass_on) {
  const auto cluster = start_cluster();
  const auto refused =
      cluster->spawn<Fragile>({.name = "f"}, std::string(std::size_t{256} << 20, 'x')).get(limit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument) << refused.error().message;
  EXPECT_TRUE(cluster->spawn<Fragile>({.name = "f"}, "").get(limit).ok()) << "the name is free";
}

TEST(Spawn, reports_that_no_thread_can_be_started_and_the_process_lives_on) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve memory without bounds";
#endif
  const auto cluster = start_cluster();
  const auto first = must(cluster->spawn<Leaver>({.process = "p"}, "").get(limit));
  ASSERT_TRUE(first.call<&Leaver::leave_no_room_for_threads>().get(limit).ok());
  const auto second =
      cluster->spawn<Leaver>({.process = "p", .dedicated_thread = true}, "").get(limit);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::resource_exhausted) << second.error().message;
  EXPECT_TRUE(cluster->spawn<Leaver>({.process = "p"}, "").get(limit).ok()) << "it needs no thread";
  EXPECT_TRUE(first.call<&Leaver::pid>().get(limit).ok());
}

TEST(Spawn, lets_destructors_ask_the_agent_when_the_job_ends) {
  const tests::TemporaryFolder folder;
  const auto note = folder.path() / "note";
  auto cluster = start_cluster();
  must(cluster->spawn<Leaver>({}, note.string()).get(limit));
  cluster->shutdown(10s);
  std::ifstream file(note);
  std::string outcome;
  file >> outcome;
  EXPECT_EQ(outcome, "ok");
}

TEST(Spawn, forgets_the_memory_of_actors_whose_processes_have_all_ended) {
  const auto cluster = start_cluster();
  const auto spawn = [&] { return must(cluster->spawn<Insider>({}).get(limit)); };
  const auto kill = [&](const ActorHandle<Insider>& actor) {
    const Promise<void> died;
    const auto token = cluster->watch(actor, [died](const ActorDown&) { died.complete({}); });
    ASSERT_TRUE(cluster->kill(actor).ok());
    ASSERT_TRUE(died.future().get(limit).ok());
  };
  const auto first = spawn(), second = spawn();
  must(first.call<&Insider::write_memory>("left", 4096, 7).get(limit));
  EXPECT_EQ(must(second.call<&Insider::read_memory>("left", 4096).get(limit)), 7);
  kill(first);
  const auto third = spawn();
  EXPECT_EQ(must(third.call<&Insider::read_memory>("left", 4096).get(limit)), 7);
  kill(second);
  kill(third);
  EXPECT_EQ(must(spawn().call<&Insider::read_memory>("left", 4096).get(limit)), 0);
}

/// Asks its context for memory when told to continue.
class Straggler {
 public:
  struct Shared {
    Promise<int> begun, go_on, asked;
  };
  Straggler(ActorContext& context, std::shared_ptr<Shared> shared)
      : context_(context), shared_(std::move(shared)) {}
  void ask_late() {
    shared_->begun.complete(1);
    (void)shared_->go_on.future().get(limit);
    (void)context_.shared_memory("late", 4096);
    (void)context_.release_shared_memory("late");
    shared_->asked.complete(1);
  }

  using Arguments = troupe::Arguments<std::shared_ptr<Shared>>;
  using Methods = troupe::Methods<&Straggler::ask_late>;
  static constexpr std::string_view actor_type = "Straggler";

 private:
  ActorContext& context_;
  std::shared_ptr<Shared> shared_;
};

TEST(Spawn, lets_local_actors_that_outlive_the_cluster_use_their_context) {
  const auto shared = std::make_shared<Straggler::Shared>();
  auto cluster = start_cluster();
  const auto straggler = must(cluster->spawn_local<Straggler>({}, shared).get(limit));
  straggler.call<&Straggler::ask_late>();
  ASSERT_TRUE(shared->begun.future().get(limit).ok());
  cluster->shutdown(std::chrono::milliseconds(100));
  cluster.reset();
  shared->go_on.complete(1);
  EXPECT_TRUE(shared->asked.future().get(limit).ok());
}

TEST(Spawn, needs_no_list_of_classes_and_no_names_for_them) {
  const auto cluster = start_cluster();
  const auto unlisted = must(cluster->spawn<Unlisted>({.name = "it"}).get(limit));
  EXPECT_EQ(must(unlisted.call<&Unlisted::answer>().get(limit)), 43);
  EXPECT_EQ(unlisted.address().type, "troupe::test::Unlisted");
  EXPECT_TRUE(cluster->find<Unlisted>("it").ok());
  EXPECT_EQ(cluster->find<Counter>("it").error().code, ErrorCode::invalid_argument);
}

TEST(Spawn, hosts_local_actors_in_this_process) {
  const auto cluster = start_cluster();
  const auto local = must(cluster->spawn_local<Insider>({.name = "here"}).get(limit));
  EXPECT_EQ(must(local.call<&Insider::pid>().get(limit)), ::getpid());
  const auto unlisted = must(cluster->spawn_local<Unlisted>({}).get(limit));
  EXPECT_EQ(must(unlisted.call<&Unlisted::answer>().get(limit)), 43);
  const auto remote = must(cluster->spawn<Counter>({.name = "there"}, 1).get(limit));
  EXPECT_EQ(must(local.call<&Insider::add_by_name>("there", 2).get(limit)), 3);
  EXPECT_EQ(must(local.call<&Insider::add_through>(remote, 2).get(limit)), 5);
}

/// Waits for an answer that takes long.
class Patient {
 public:
  Patient(ActorHandle<Recorder> slow, std::shared_ptr<std::atomic<bool>> alive)
      : slow_(std::move(slow)), alive_(std::move(alive)) {
    *alive_ = true;
  }
  ~Patient() { *alive_ = false; }
  Result<void> wait() { return slow_.call<&Recorder::block_for_ms>(60000).get(limit); }

  using Arguments = troupe::Arguments<ActorHandle<Recorder>, std::shared_ptr<std::atomic<bool>>>;
  using Methods = troupe::Methods<&Patient::wait>;
  static constexpr std::string_view actor_type = "Patient";

 private:
  ActorHandle<Recorder> slow_;
  std::shared_ptr<std::atomic<bool>> alive_;
};

TEST(Spawn, shutdown_ends_local_actors_that_wait_for_an_answer) {
  const auto cluster = start_cluster();
  const auto slow = must(cluster->spawn<Recorder>({}).get(limit));
  const auto alive = std::make_shared<std::atomic<bool>>(false);
  const auto patient =
      must(cluster->spawn_local<Patient>({.name = "patient"}, slow, alive).get(limit));
  auto answer = patient.call<&Patient::wait>();
  cluster->shutdown(std::chrono::milliseconds(200));
  EXPECT_TRUE(answer.wait(std::chrono::seconds(0))) << "the call goes on after the shutdown";
  EXPECT_FALSE(*alive) << "the actor is still there after the shutdown";
}

TEST(Spawn, passes_handles_between_actors_and_finds_them_by_name) {
  const auto cluster = start_cluster();
  const auto counter = must(cluster->spawn<Counter>({.name = "sum"}, 0).get(limit));
  const auto insider = must(cluster->spawn<Insider>({}).get(limit));
  EXPECT_EQ(must(insider.call<&Insider::add_through>(counter, 7).get(limit)), 7);
  EXPECT_EQ(must(insider.call<&Insider::add_by_name>("sum", 1).get(limit)), 8);
  EXPECT_EQ(insider.call<&Insider::add_by_name>("none", 1).get(limit).error().code,
            ErrorCode::not_found);
  EXPECT_EQ(must(insider.call<&Insider::self>().get(limit)), insider);
  EXPECT_EQ(must(cluster->find<Counter>("sum")), counter);
  EXPECT_EQ(cluster->find<Recorder>("sum").error().code, ErrorCode::invalid_argument);
}

TEST(Spawn, keeps_actors_of_one_name_in_different_namespaces_apart) {
  const tests::TemporaryFolder logs;
  ClusterOptions options;
  options.name_space = "blue";
  options.log_folder = logs.path();
  const auto cluster = start_cluster(std::move(options));
  const auto spawn = [&](const std::string& space, int value) {
    return cluster->spawn<Counter>({.name = "sum", .name_space = space}, value).get(limit);
  };
  const auto blue = must(spawn("", 10));
  const auto green = must(spawn("green", 20));
  const auto local =
      must(cluster->spawn_local<Counter>({.name = "sum", .name_space = "red"}, 30).get(limit));
  EXPECT_EQ(spawn("blue", 0).error().code, ErrorCode::already_exists) << "it is the cluster's own";
  EXPECT_EQ(spawn("green", 0).error().code, ErrorCode::already_exists);
  EXPECT_EQ(spawn("a/b", 0).error().code, ErrorCode::invalid_argument);

  EXPECT_EQ(must(cluster->find<Counter>("sum")), blue);
  EXPECT_EQ(must(cluster->find<Counter>("sum", "blue")), blue);
  EXPECT_EQ(must(cluster->find<Counter>("sum", "green")), green);
  EXPECT_EQ(must(cluster->find<Counter>("green/sum")), green) << "its full name";
  EXPECT_EQ(green.name(), "green/sum");
  const auto missing = cluster->find<Counter>("sum", "yellow");
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().message,
            "no actor is named 'yellow/sum'; in other namespaces there are 'sum', 'green/sum', "
            "'red/sum'");

  const auto insider =
      must(cluster->spawn<Insider>({.name = "insider", .name_space = "green"}).get(limit));
  EXPECT_EQ(must(insider.call<&Insider::name>().get(limit)), "green/insider");
  EXPECT_EQ(must(insider.call<&Insider::add_by_name>("sum", 1).get(limit)), 11);
  EXPECT_EQ(must(insider.call<&Insider::add_in>("green", "sum", 1).get(limit)), 21);
  EXPECT_EQ(must(insider.call<&Insider::add_in>("red", "sum", 1).get(limit)), 31);
  EXPECT_EQ(insider.call<&Insider::add_in>("yellow", "sum", 1).get(limit).error().code,
            ErrorCode::not_found);
  EXPECT_TRUE(std::filesystem::exists(logs.path() / "green.sum.log"));

  ASSERT_TRUE(cluster->stop(green).ok());
  EXPECT_EQ(must(cluster->find<Counter>("sum")), blue);
  EXPECT_EQ(must(spawn("green", 40)).name(), "green/sum") << "the name is free again";
}

TEST(Spawn, writes_a_log_per_process) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("troupe-log-test-{}", ::getpid());
  {
    ClusterOptions options;
    options.log_folder = folder.string();
    const auto cluster = start_cluster(std::move(options));
    must(cluster->spawn<Counter>({.name = "logger"}, 0).get(limit));
    EXPECT_EQ(cluster->actors().back().log_path, (folder / "logger.log").string());
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "logger.log"));
  EXPECT_TRUE(std::filesystem::exists(folder / "agent-node0.log"));
  std::filesystem::remove_all(folder);
}

TEST(SharedMemory, is_one_region_for_all_actors_of_a_node) {
  ClusterOptions options;
  options.nodes = {{"left", 2, {}}, {"right", 2, {}}};
  const auto cluster = start_cluster(std::move(options));
  const auto a = must(cluster->spawn<Insider>({.node = "left"}).get(limit));
  const auto b = must(cluster->spawn<Insider>({.node = "left"}).get(limit));
  const auto c = must(cluster->spawn<Insider>({.node = "right"}).get(limit));
  const auto inode = must(a.call<&Insider::memory_inode>("ring/0", 4096).get(limit));
  EXPECT_EQ(must(b.call<&Insider::memory_inode>("ring/0", 4096).get(limit)), inode);
  EXPECT_NE(must(c.call<&Insider::memory_inode>("ring/0", 4096).get(limit)), inode)
      << "another node, another region";
  EXPECT_EQ(must(b.call<&Insider::read_memory>("ring/0", 4096).get(limit)), 0) << "zeroed";
  must(a.call<&Insider::write_memory>("ring/0", 4096, 77).get(limit));
  EXPECT_EQ(must(b.call<&Insider::read_memory>("ring/0", 4096).get(limit)), 77);
  EXPECT_EQ(b.call<&Insider::memory_inode>("ring/0", 8192).get(limit).error().code,
            ErrorCode::invalid_argument);
  must(a.call<&Insider::release_memory>("ring/").get(limit));
  EXPECT_EQ(must(b.call<&Insider::read_memory>("ring/0", 8192).get(limit)), 0)
      << "a new region after the release";
}

TEST(Stops, that_are_late_leave_the_others_in_the_process_alone) {
  const auto cluster = start_cluster();
  const auto busy = must(cluster->spawn<Recorder>({.process = "shared"}).get(limit));
  const auto other = must(cluster->spawn<Counter>({.process = "shared"}, 1).get(limit));
  auto running = busy.call<&Recorder::block_for_ms>(60000);
  EXPECT_FALSE(running.wait(100ms));
  const auto late = cluster->stop(busy, 50ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  EXPECT_NE(late.error().message.find("goes on"), std::string::npos) << late.error().message;
  // A process that was killed has ended before this stop does.
  const auto bystander = must(cluster->spawn<Counter>({.process = "shared"}, 5).get(limit));
  ASSERT_TRUE(cluster->stop(bystander, limit).ok());
  EXPECT_EQ(must(other.call<&Counter::add>(1).get(limit)), 2);
  // Alone, it is killed.
  ASSERT_TRUE(cluster->stop(other, limit).ok());
  EXPECT_EQ(cluster->stop(busy, 50ms).error().code, ErrorCode::timed_out);
  EXPECT_EQ(running.get(limit).error().code, ErrorCode::actor_died);
}

}  // namespace troupe::test
