#include "tests/fault/launcher/support/undisturbed_run.hpp"

#include <gtest/gtest.h>

#include "tests/support/sorted_lines.hpp"

namespace troupe::test {
namespace {

void expect_finished(LauncherRun& run, int requests, std::chrono::milliseconds limit) {
  const Aftermath seen = run.watch(Clock::now(), {}, limit);
  ASSERT_TRUE(seen.gone_ms.has_value()) << run.stderr_text();
  ASSERT_EQ(seen.exit_code, std::optional<int>(0)) << run.stderr_text();
  const auto answers = count_whole_answers(run.output_text());
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  EXPECT_EQ(*answers, static_cast<std::size_t>(requests));
}

}  // namespace

void finish_as_undisturbed(LauncherRun& run, const Undisturbed& as,
                           std::chrono::milliseconds limit) {
  ASSERT_NO_FATAL_FAILURE(expect_finished(run, as.requests, limit));
  auto undisturbed =
      LauncherRun::start(as.parallel, as.requests, as.longest_answer, as.sections, as.body);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  ASSERT_NO_FATAL_FAILURE(expect_finished(*undisturbed, as.requests, limit));
  const auto expected = sorted_lines(undisturbed->output_text());
  const auto found = sorted_lines(run.output_text());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], expected[i]);
}

}  // namespace troupe::test
