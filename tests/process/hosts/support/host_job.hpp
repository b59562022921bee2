#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/cut_link.hpp"
#include "tests/process/hosts/support/host_processes.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"

namespace troupe::launcher_test {

/// So many requests of so many tokens each; under sanitizers half as many. Those slow answers down
/// about four times and start a process a second later: half of the requests then last twice as
/// long as all do without them, and leave a node as much time to join.
std::string tales(int count, int tokens);
/// A batch of tales that runs for some seconds on two workers.
std::string long_input(int requests = 400);

/// By node: how soon after its agent had connected the domain on it gave its first answer, as the
/// report's domain_changes have it. Prints that.
std::map<std::string, std::chrono::duration<double>> first_answers(const nlohmann::json& changes);

/// A fixture with a job over the tests' hosts, whose token for agents that join is job.token.
class HostJob : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Starts a job with these values of --set, and waits until it has begun to answer `input`.
  void start(const std::string& input, std::vector<std::string> settings);
  /// The agent of a host joins the job, by `program` if one is given.
  std::unique_ptr<JoiningAgent> join(int host, const std::string& program = {}) const;
  /// The same; it ends with the test.
  void let_join(int host) { agents_.push_back(join(host)); }
  static void kill_agent_with(const std::string& worker);

  std::string pid() const { return std::to_string(running_->pid()); }
  /// Runs `launcher WORDS`.
  Ended command(const std::vector<std::string>& words) const;
  /// `launcher drain` of the job's node.
  Ended drain(const std::string& node) const { return command({"drain", pid(), node}); }
  bool is_told(const std::string& text, std::chrono::milliseconds limit = run_limit) const {
    return running_->wait_for_stderr(text, limit);
  }
  bool is_logged(const std::string& text) const;
  Ended wait(std::chrono::milliseconds limit = run_limit) const { return running_->wait(limit); }
  /// Whether the launcher has ended; it remains to be waited for.
  bool has_ended() const;

  /// All requests have the answers of an undisturbed job.
  void expect_all_answers(const Ended& ended) const;
  /// The job has ended resumable, and the same command answers the rest.
  void expect_goes_on(const Ended& ended) const;
  nlohmann::json report() const;
  nlohmann::json changes() const { return report().at("domain_changes"); }

  LauncherJob job_;
  golden::TemporaryFolder prints_;
  std::string input_;
  std::vector<std::string> arguments_;
  std::vector<std::unique_ptr<JoiningAgent>> agents_;
  std::unique_ptr<LauncherProcess> running_;
};

}  // namespace troupe::launcher_test
