#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

TEST(Slurm, a_job_in_an_allocation_gives_the_bytes_of_one_worker_over_its_nodes) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  const auto command = fmt::format(
      "cd {} && timeout 100 " TROUPE_SOURCE_DIR "/tests/support/hosts/with-slurm 2 " TROUPE_LAUNCHER
      " --config cluster.yaml --set cluster.launch=slurm --set cluster.network=lo --set "
      "parallel.pipeline_parallel_size=2 --set parallel.tensor_parallel_size=2 >slurm.log 2>&1",
      job.folder().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << golden::file_bytes(job.folder() / "slurm.log");
  expect_same_payloads(answers_to(golden_input()), job.answers(), "pp2 x tp2 over two Slurm nodes");
  for (const char* node : {"n1", "n2"}) {
    EXPECT_TRUE(std::filesystem::exists(job.folder() / "out.jsonl.job" /
                                        fmt::format("agent-{}.log", node)));
  }
}

TEST(Slurm, init_in_an_allocation_writes_a_configuration_that_runs_over_its_nodes) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  std::ofstream(job.folder() / "hosts") << "127.0.0.1 localhost n1 n2\n";
  std::ofstream(job.folder() / "script.sh")
      << fmt::format(TROUPE_LAUNCHER " init --model {} --output mine.yaml && " TROUPE_LAUNCHER
                                     " --config mine.yaml --input in.jsonl --output out.jsonl",
                     demo_model().string());
  // Names of nodes resolve, as they do on a cluster.
  const auto command = fmt::format(
      "cd {} && timeout 100 unshare --mount sh -c 'mount --bind hosts /etc/hosts && "
      "exec " TROUPE_SOURCE_DIR "/tests/support/hosts/with-slurm 2 bash script.sh' >slurm.log 2>&1",
      job.folder().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << golden::file_bytes(job.folder() / "slurm.log");
  EXPECT_NE(golden::file_bytes(job.folder() / "mine.yaml").find("launch: slurm"),
            std::string::npos);
  expect_same_payloads(answers_to(golden_input()), job.answers(), "what init wrote in Slurm");
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "out.jsonl.job" / "agent-n2.log"));
}

/// The body of a script that runs in with-slurm --no-allocation: submits the job of the folder with
/// `options`, runs `after`, and waits until each job in the queue has succeeded. An answer that
/// squeue could not give says nothing of the jobs.
std::string submit_and_wait(const LauncherJob& job, const std::string& options,
                            const std::string& after = ":") {
  return fmt::format(
      "cd {}; " TROUPE_LAUNCHER
      " submit --config cluster.yaml --set cluster.network=lo {} || exit 9; {}; "
      "for i in $(seq 600); do "
      "states=$(squeue --noheader --states=all --format=%T) && [ -n \"$states\" ] && "
      "! echo \"$states\" | grep -qvx COMPLETED && exit 0; sleep 0.1; done; "
      "scontrol show job; tail -n 30 *.slurm-*.log out*.job/*.log; exit 8",
      job.folder().string(), options, after);
}

/// A command for submit_and_wait() that runs `command` after the first answer, with the job's
/// number as $id, and waits until the job is back in the queue.
std::string requeued_after(const std::string& command) {
  return "id=$(squeue --noheader --format=%i); "
         "for i in $(seq 300); do [ -s out.jsonl ] && break; sleep 0.05; done; " +
         command +
         "; for i in $(seq 300); do scontrol show job $id | grep -q 'Restarts=1' && "
         "break; sleep 0.1; done; "
         "scontrol show job $id | grep -o 'Restarts=1' || exit 7";
}

/// Runs the script beside `nodes` idle nodes; returns what it printed.
std::string run_beside_slurm(const LauncherJob& job, int nodes, const std::string& script) {
  std::ofstream(job.folder() / "script.sh") << script;
  const auto command =
      fmt::format("timeout 100 " TROUPE_SOURCE_DIR
                  "/tests/support/hosts/with-slurm --no-allocation {} bash {}/script.sh "
                  ">{}/slurm.log 2>&1",
                  nodes, job.folder().string(), job.folder().string());
  const int code = std::system(command.c_str());
  const std::string printed = golden::file_bytes(job.folder() / "slurm.log");
  EXPECT_EQ(code, 0) << printed;
  return printed;
}

TEST(Submit, runs_the_job_over_the_nodes_that_slurm_gives_it) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  const auto printed = run_beside_slurm(
      job, 2, submit_and_wait(job, "--set parallel.pipeline_parallel_size=2 -- --nodes=2"));
  EXPECT_NE(printed.find("submitted job "), std::string::npos) << printed;
  expect_same_payloads(answers_to(golden_input()), job.answers(), "pp2 over two submitted nodes");
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "out.jsonl.sbatch"));
}

TEST(Submit, of_an_array_shares_out_the_lines_among_jobs_with_outputs_of_their_own) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  run_beside_slurm(job, 2, submit_and_wait(job, "--array 2 -- --nodes=1"));
  std::string both;
  for (const char* name : {"out-00000-of-00002.jsonl", "out-00001-of-00002.jsonl"}) {
    both += golden::file_bytes(job.folder() / name);
  }
  std::ofstream(job.output()) << both;
  expect_same_payloads(answers_to(golden_input()), job.answers(), "two shards");
}

TEST(Submit, puts_a_job_that_drained_before_its_time_limit_back_into_the_queue) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  // One sequence at a time, so that there is time for the signal after the first answer.
  run_beside_slurm(job, 1,
                   submit_and_wait(job, "--set engine.max_num_seqs=1 -- --nodes=1",
                                   requeued_after("scancel --batch --signal=USR1 $id")));
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a requeued job");
}

TEST(Submit, puts_a_job_whose_launcher_was_killed_back_into_the_queue) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  run_beside_slurm(
      job, 2,
      submit_and_wait(job,
                      "--set engine.max_num_seqs=4 --set parallel.tensor_parallel_size=2 -- "
                      "--nodes=2",
                      requeued_after("read word pid rest < out.jsonl.job/lock; kill -9 $pid")));
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a requeued job");
}

TEST(Submit, logs_beside_an_output_whose_name_looks_like_a_pattern) {
  if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  const auto printed =
      run_beside_slurm(job, 1, submit_and_wait(job, "--output 50%j.jsonl -- --nodes=1"));
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "50%j.jsonl")) << printed;
  const auto begin = printed.find("log:     ") + 9;
  const std::string log = printed.substr(begin, printed.find('\n', begin) - begin);
  EXPECT_NE(log.find("50%j.jsonl.slurm-"), std::string::npos) << log;
  EXPECT_TRUE(std::filesystem::exists(log)) << log;
}

TEST(Submit, refuses_what_no_queue_can_run) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended hosts = job.run_plain({"submit", "--config", (job.folder() / "cluster.yaml").string(),
                                     "--set", "cluster.hosts=[h1]", "--set", "cluster.launch=ssh"});
  EXPECT_EQ(hosts.code, 2);
  EXPECT_NE(hosts.describe().find("Slurm gives the nodes"), std::string::npos) << hosts.describe();
  const Ended pipe = job.run_plain(
      {"submit", "--config", (job.folder() / "cluster.yaml").string(), "--input", "-"});
  EXPECT_EQ(pipe.code, 2);
  EXPECT_NE(pipe.describe().find("needs a file"), std::string::npos) << pipe.describe();
  const Ended backslash = job.run_plain(
      {"submit", "--config", (job.folder() / "cluster.yaml").string(), "--output", "a\\b.jsonl"});
  EXPECT_EQ(backslash.code, 2);
  EXPECT_NE(backslash.describe().find("backslash"), std::string::npos) << backslash.describe();
  const std::pair<std::string, const char*> others[] = {
      {"job.output=in.jsonl", "in.jsonl"},
      {"job.output=nowhere/out.jsonl", "mkdir -p nowhere"},
      {"parallel.tensor_parallel_size=3", "parallel.tensor_parallel_size"},
      {"cluster.listen=h1:7000", "set cluster.launch: join"},
      {"name=a\nb", "name: a batch script takes no line breaks"}};
  for (const auto& [setting, why] : others) {
    const Ended ended =
        job.run_plain({"submit", "--dry-run", "--config", "cluster.yaml", "--set", setting});
    EXPECT_EQ(ended.code, 2) << setting;
    EXPECT_NE(ended.describe().find(why), std::string::npos) << ended.describe();
  }
}

TEST(Submit, lets_a_requeued_job_go_on_although_it_was_to_resume_nothing) {
  const LauncherJob job;
  job.write_input(golden_input());
  const std::vector<std::string> arguments = {"submit",       "--dry-run", "--config",
                                              "cluster.yaml", "--set",     "job.resume=never"};
  const Ended ended = job.run_plain(arguments);
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_NE(ended.out.find("--set job.resume=auto"), std::string::npos) << ended.out;
  std::ofstream(job.output()) << "{}\n";
  EXPECT_EQ(job.run_plain(arguments).code, 2);
}

TEST(Slurm, a_job_outside_of_an_allocation_is_refused_with_the_remedy) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run({"--set", "cluster.launch=slurm"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.describe().find("run the launcher in salloc or sbatch"), std::string::npos)
      << ended.describe();
}

}  // namespace
}  // namespace troupe::launcher_test
