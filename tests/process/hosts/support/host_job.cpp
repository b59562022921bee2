#include "tests/process/hosts/support/host_job.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/wait.h>

#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {

std::string tales(int count, int tokens) {
  constexpr int share = test::time_scale == 1 ? 1 : 2;
  std::string input;
  for (int i = 0; i < count / share; ++i) {
    input += completion(fmt::format("tale-{}", i), fmt::format("Fable {}. The crow said,", i),
                        {{"temperature", 0.7}, {"ignore_eos", true}, {"max_tokens", tokens}});
  }
  return input;
}

std::string long_input(int requests) { return tales(requests, 100); }

void HostJob::SetUp() {
  if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  write_token(job_.folder() / "job.token", 'a');
  ::setenv("XDG_STATE_HOME", (prints_.path() / "state").c_str(), 1);
}

void HostJob::TearDown() { ::unsetenv("XDG_STATE_HOME"); }

void HostJob::start(const std::string& input, std::vector<std::string> settings) {
  input_ = input;
  job_.write_input(input_);
  settings.emplace_back("engine.max_num_seqs=8");
  arguments_ = as_arguments(settings);
  running_ = job_.start(arguments_);
  ASSERT_TRUE(running_->wait_for_lines(job_.output(), 1, run_limit))
      << running_->wait(run_limit).describe();
}

std::unique_ptr<JoiningAgent> HostJob::join(int host, const std::string& program) const {
  return std::make_unique<JoiningAgent>(job_, host, "job.token", program);
}

void HostJob::kill_agent_with(const std::string& worker) {
  const int agent = agent_with(worker);
  ASSERT_NE(agent, 0) << worker;
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
}

Ended HostJob::command(const std::vector<std::string>& words) const {
  return LauncherProcess(words, job_.folder(), prints_.path()).wait(run_limit);
}

bool HostJob::is_logged(const std::string& text) const {
  return running_->wait_for_text(job_.folder() / "out.jsonl.job" / "launcher.log", text, run_limit);
}

bool HostJob::has_ended() const {
  siginfo_t info{};
  const auto pid = static_cast<id_t>(running_->pid());
  return ::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

void HostJob::expect_all_answers(const Ended& ended) const {
  ASSERT_EQ(ended.code, 0) << ended.describe() << job_.log();
  expect_same_payloads(answers_to(input_), job_.answers(), "a job that was disturbed");
}

void HostJob::expect_goes_on(const Ended& ended) const {
  ASSERT_EQ(ended.code, 3) << ended.describe();
  expect_all_answers(job_.run(arguments_));
}

nlohmann::json HostJob::report() const {
  return nlohmann::json::parse(golden::file_bytes(job_.folder() / "out.jsonl.job" / "report.json"));
}

std::map<std::string, std::chrono::duration<double>> first_answers(const nlohmann::json& changes) {
  std::map<std::string, std::chrono::duration<double>> found;
  for (const nlohmann::json& change : changes) {
    if (change.at("change") != "answered") continue;
    const auto node = change.at("nodes").at(0).get<std::string>();
    const std::chrono::duration<double> took(change.at("seconds").get<double>());
    std::printf("first answer on %s %.2f s after its agent connected\n", node.c_str(),
                took.count());
    found.emplace(node, took);
  }
  return found;
}

}  // namespace troupe::launcher_test
