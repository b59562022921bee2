#include "tests/fault/launcher/support/resumption.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/fault/launcher/support/undisturbed_run.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds whole_run{180'000 * time_scale};
constexpr milliseconds patience{10'000 * time_scale};
constexpr const char* arrangement = "tensor_parallel_size: 2";
constexpr int longest_answer = 64;

/// Describes what was waited for.
std::string wait_a_while(const LauncherRun& run, std::mt19937& random, bool for_answers,
                         std::size_t before, std::size_t share, int longest_wait_ms) {
  if (for_answers) {
    const std::size_t answers = before + 1 + random() % share;
    (void)run.wait_for_answers(answers, patience);
    return fmt::format("at {} lines", answers);
  }
  const int wait_ms = static_cast<int>(random() % static_cast<unsigned>(longest_wait_ms));
  // The test varies the elapsed time; it waits for nothing.
  std::this_thread::sleep_for(milliseconds(wait_ms));
  return fmt::format("after {} ms", wait_ms);
}

}  // namespace

void kill_and_resume(int kills, int requests, int longest_wait_ms) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  auto run = LauncherRun::start(arrangement, requests, longest_answer);
  ASSERT_TRUE(run.ok()) << run.error().message;
  std::size_t max_before = 0;
  const std::size_t share = static_cast<std::size_t>(requests / kills);
  for (int i = 0; i < kills; ++i) {
    const std::size_t left = static_cast<std::size_t>(requests) - max_before;
    const std::string when = wait_a_while(*run, random, i % 2 == 0 && left > 0, max_before,
                                          std::min(share, left), longest_wait_ms);
    const int driver = run->wait_for_role("driver", milliseconds(0));
    if (driver != 0) {
      ASSERT_EQ(::kill(driver, SIGKILL), 0);
    }
    const Aftermath seen = run->watch(Clock::now(), {}, patience);
    ASSERT_TRUE(seen.gone_ms.has_value()) << "kill " << i << ": processes are left";
    const std::string text = run->output_text();
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_GE(lines, max_before) << "kill " << i << " lost answers";
    max_before = lines;
    std::printf("kill %2d %s: %zu of %d lines\n", i + 1, when.c_str(), lines, requests);
    const auto again = run->start_again();
    ASSERT_TRUE(again.ok()) << again.error().message;
  }
  SCOPED_TRACE(fmt::format("seed {}", seed));
  ASSERT_NO_FATAL_FAILURE(finish_as_undisturbed(
      *run, {.parallel = arrangement, .requests = requests, .longest_answer = longest_answer},
      whole_run));
}

}  // namespace troupe::test
