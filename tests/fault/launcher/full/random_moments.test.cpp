#include <cstdio>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fault/launcher/support/expectations.hpp"
#include "tests/support/time_scale.hpp"

// Signals at random moments from the start of the launcher on, to a randomly chosen process.

namespace troupe::test {
namespace {

constexpr int longest_wait_ms = 2500;

class RandomMoments : public testing::Test {
 protected:
  void strike(int signal_number, int times, bool driver_too) {
    const unsigned seed = std::random_device{}();
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    for (int i = 0; i < times && !HasFailure(); ++i) {
      auto run = LauncherRun::start();
      ASSERT_TRUE(run.ok()) << run.error().message;
      // An agent that has not reported yet is given more time than one that falls silent.
      if (signal_number == SIGSTOP) {
        ASSERT_NE(run->wait_for_role("executor", std::chrono::seconds(30) * time_scale), 0);
      }
      const int wait_ms = static_cast<int>(random() % longest_wait_ms);
      // The test varies the elapsed time; it waits for nothing.
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      std::vector<std::string> roles;
      for (const JobProcess& process : run->processes()) {
        if (!process.role.empty() && (driver_too || process.role != "driver")) {
          roles.push_back(process.role);
        }
      }
      if (roles.empty()) roles.push_back("agent");
      const std::string role = roles[random() % roles.size()];
      strike_and_check(*run, {role, signal_number}, fmt::format("{} ms later", wait_ms));
    }
  }
};

TEST_F(RandomMoments, kill_ends_the_job_in_time_and_is_named) { strike(SIGKILL, 20, true); }
TEST_F(RandomMoments, stop_ends_the_job_in_time_and_is_named) { strike(SIGSTOP, 10, false); }

}  // namespace
}  // namespace troupe::test
