#include <csignal>
#include <numeric>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"
#include "tests/process/report/report_files.hpp"

// Checks report.json of real jobs against their answers.

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int demo_top_k = 4;

struct Tokens {
  std::int64_t prompt = 0;
  std::int64_t output = 0;
};

Tokens tokens_of(const Answers& answers) {
  Tokens tokens;
  for (const auto& [id, answer] : answers) {
    if (!answer.ok()) continue;
    tokens.prompt += answer.body().at("usage").at("prompt_tokens").get<std::int64_t>();
    tokens.output += answer.body().at("usage").at("completion_tokens").get<std::int64_t>();
  }
  return tokens;
}

std::int64_t sum_of(const json& numbers) {
  std::int64_t sum = 0;
  for (const auto& number : numbers) sum += number.get<std::int64_t>();
  return sum;
}

/// Every layer's experts have computed top_k rows for each token that passed their stage; those of
/// the last layer for fewer, as tokens that need no logits may be left out.
void expect_rows_of_every_token(const json& report, int stages, std::int64_t rows) {
  const json& layers = report.at("experts").at("rows");
  const std::size_t per_stage = layers.size() / static_cast<std::size_t>(stages);
  std::vector<std::int64_t> of_stage(static_cast<std::size_t>(stages), 0);
  for (const auto& rank : report.at("ranks")) {
    of_stage.at(rank.at("stage").get<std::size_t>()) = rank.at("rows").get<std::int64_t>();
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const std::int64_t passed = demo_top_k * of_stage[layer / per_stage];
    if (layer + 1 == layers.size()) {
      EXPECT_LE(sum_of(layers[layer]), passed);
      EXPECT_GT(sum_of(layers[layer]), 0);
    } else {
      EXPECT_EQ(sum_of(layers[layer]), passed) << "layer " << layer;
    }
  }
  for (const std::int64_t passed : of_stage) EXPECT_EQ(passed, rows);
}

void expect_agreement(std::vector<std::string> arguments) {
  const LauncherJob job;
  job.write_input(some_requests(12) + "this is no JSON\n");
  // With these settings every token passes the model exactly once.
  for (const auto& exact : settings({"engine.async_scheduling=false",
                                     "engine.enable_prefix_caching=false", "slo.e2e_ms=100000"})) {
    arguments.push_back(exact);
  }
  const bool two_stages = arguments.at(1).starts_with("parallel.pipeline");
  const Ended ended = job.run(arguments);
  ASSERT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("time outside the model: "));
  const json report = job_file(job, "report.json");
  const Answers answers = job.answers();
  const Tokens tokens = tokens_of(answers);
  ASSERT_EQ(answers.size(), 13U);

  EXPECT_EQ(report.at("job").at("outcome"), "finished with error lines");
  EXPECT_EQ(report.at("requests").at("answered"), 12);
  EXPECT_EQ(report.at("requests").at("errors"), 1);
  EXPECT_EQ(report.at("tokens").at("prompt"), tokens.prompt);
  EXPECT_EQ(report.at("tokens").at("output"), tokens.output);
  EXPECT_EQ(report.at("tokens").at("generated"), tokens.output);
  EXPECT_EQ(report.at("tokens").at("computed_prompt"), tokens.prompt);
  EXPECT_EQ(report.at("latency_ms").at("ttft").at("count"), 12);
  EXPECT_EQ(report.at("latency_ms").at("e2e").at("count"), 12);
  EXPECT_EQ(report.at("latency_ms").at("itl").at("count"), tokens.output - 12);
  EXPECT_EQ(report.at("goodput").at("good_answers"), 12);
  EXPECT_EQ(report.at("ranks").size(), 2U);
  // The last token of an answer is sampled but not computed.
  expect_rows_of_every_token(report, two_stages ? 2 : 1, tokens.prompt + tokens.output - 12);

  const json& time = report.at("over_time");
  double output = 0;
  for (const auto& rate : time.at("output_tokens_per_second")) {
    output += rate.get<double>() * time.at("interval_seconds").get<double>();
  }
  EXPECT_NEAR(output, static_cast<double>(tokens.output),
              0.01 * static_cast<double>(tokens.output));
  EXPECT_EQ(sum_of(time.at("steps")), report.at("steps").at("count").get<std::int64_t>());
}

TEST(Report, agrees_with_the_answers_to_the_token) {
  // In each way to compute experts: whole, split, and distributed.
  const std::vector<std::string> ways[] = {
      settings({"parallel.pipeline_parallel_size=2"}),
      settings({"parallel.tensor_parallel_size=2", "parallel.expert_parallel_size=1"}),
      settings({"parallel.tensor_parallel_size=2", "parallel.expert_parallel_size=2"})};
  for (const auto& way : ways) {
    SCOPED_TRACE(way.at(1) + ", " + way.back());
    expect_agreement(way);
  }
}

TEST(Report, divides_the_time_of_every_rank_and_counts_no_time_in_the_model_twice) {
  const LauncherJob job;
  job.write_input(some_requests(40));
  const Ended ended =
      job.run(settings({"parallel.pipeline_parallel_size=2", "parallel.data_parallel_size=2"}));
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json report = job_file(job, "report.json");
  const double serving = report.at("job").at("serving_seconds");
  ASSERT_EQ(report.at("ranks").size(), 4U);
  for (const auto& rank : report.at("ranks")) {
    double sum = 0;
    for (const auto* part : {"computing_seconds", "exchange_seconds", "stage_seconds",
                             "waiting_seconds", "other_seconds"}) {
      EXPECT_GE(rank.at(part).get<double>(), 0) << part;
      sum += rank.at(part).get<double>();
    }
    EXPECT_GT(rank.at("computing_seconds").get<double>(), 0);
    EXPECT_LE(sum, 1.2 * serving + 1.5) << rank;
  }
  const json& steps = report.at("steps");
  EXPECT_LE(steps.at("model_seconds").get<double>(), steps.at("active_seconds").get<double>());
  EXPECT_GE(steps.at("share_outside_model").get<double>(), 0);
  EXPECT_LT(steps.at("share_outside_model").get<double>(), 1);
}

TEST(Report, is_there_when_nothing_is_to_be_said) {
  const LauncherJob job;
  job.write_input(some_requests(2));
  const Ended ended = job.run({"--quiet"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(job_file(job, "report.json").at("requests").at("answered"), 2);
}

TEST(Report, of_a_job_that_broke_off_says_why) {
  const LauncherJob job;
  job.write_input("this is no JSON\n" + some_requests(2000));
  const Ended ended = job.run(settings({"job.max_failures=0"}));
  ASSERT_EQ(ended.code, 3) << ended.describe();
  const json report = job_file(job, "report.json");
  EXPECT_EQ(report.at("job").at("outcome"), "failed");
  EXPECT_THAT(report.at("job").at("reason").get<std::string>(), HasSubstr("job.max_failures"));
  EXPECT_TRUE(job_file(job, "trace.json").contains("traceEvents"));
}

TEST(Report, of_a_job_that_a_signal_ended_counts_its_answers) {
  for (const bool twice : {false, true}) {
    SCOPED_TRACE(twice ? "two signals" : "one signal");
    const LauncherJob job;
    job.write_input(some_requests(5000));
    const auto launcher = job.start(settings({"engine.max_num_seqs=8"}));
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 3, std::chrono::seconds(30)))
        << launcher->wait({}).describe();
    launcher->signal(SIGTERM);
    if (twice) launcher->signal(SIGINT);
    const Ended ended = launcher->wait(run_limit);
    ASSERT_EQ(ended.code, twice ? 130 : 4) << ended.describe();
    const json report = job_file(job, "report.json");
    EXPECT_EQ(report.at("job").at("outcome"), twice ? "interrupted" : "drained");
    EXPECT_EQ(report.at("requests").at("answered").get<std::size_t>(), job.answers().size());
  }
}

TEST(Report, tells_the_wait_for_a_silent_pipe_apart_from_work) {
  const LauncherJob job;
  const auto fifo = job.folder() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto launcher = job.start({"--input", "fifo", "--json-progress"});
  {
    const UniqueFd writer(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    const std::string line = some_requests(1);
    ASSERT_EQ(::write(writer.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 1, std::chrono::seconds(30)))
        << launcher->wait({}).describe();
    // Reported up to a second late, with nothing to do meanwhile.
    ASSERT_TRUE(launcher->wait_for_stderr("\"done\":1,", std::chrono::seconds(30)));
  }
  const Ended ended = launcher->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json report = job_file(job, "report.json");
  const double waited = report.at("job").at("input_wait_seconds");
  const double worked = report.at("job").at("serving_seconds").get<double>() - waited;
  EXPECT_GT(waited, 0) << report.at("job");
  EXPECT_GT(worked, 0) << report.at("job");
  const json& tokens = report.at("tokens");
  EXPECT_NEAR(tokens.at("generated_per_second").get<double>() * worked,
              tokens.at("generated").get<double>(), 0.1);
}

TEST(Report, is_named_at_the_end_where_there_is_one) {
  const LauncherJob job;
  job.write_input("");
  const Ended nothing = job.run();
  EXPECT_EQ(nothing.code, 0) << nothing.describe();
  EXPECT_THAT(nothing.out, Not(HasSubstr("report:")));
  job.write_input(some_requests(1));
  const Ended one = job.run({"--overwrite"});
  EXPECT_EQ(one.code, 0) << one.describe();
  EXPECT_THAT(one.out, HasSubstr("report:  out.jsonl.job/report.html\n"));
}

}  // namespace
}  // namespace troupe::launcher_test
