#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

// What a job reports about its error lines, and how they are retried.

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json report_of(const LauncherJob& job) {
  return json::parse(golden::file_bytes(job.folder() / "out.jsonl.job/report.json"));
}

std::string good(const std::string& id) { return completion(id, "Once", {{"max_tokens", 4}}); }
std::string bad(const std::string& id) {
  return completion(id, "Once",
                    {{"max_tokens", 4}, {"response_format", {{"type", "json_object"}}}});
}

TEST(ErrorLines, alone_need_no_model_and_are_told_by_code_with_the_first_of_them) {
  const LauncherJob job;
  std::string input = bad("b0") + "no JSON\n";
  for (int i = 1; i < 3000; ++i) input += bad(fmt::format("b{}", i));
  job.write_input(input);
  const Ended ended = job.run();
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("3001 error lines: 3000 not_in_this_version, 1 invalid_json; "
                                   "line 1: response_format"));
  EXPECT_EQ(job.answers().size(), 3001U);
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "out.jsonl.job/worker-0.log"))
      << "the model was loaded";
  const json errors = report_of(job).at("errors");
  EXPECT_EQ(errors.at("count"), 3001);
  EXPECT_EQ(errors.at("by_code"), json({{"not_in_this_version", 3000}, {"invalid_json", 1}}));
  EXPECT_EQ(errors.at("first").at("line"), 1);
  EXPECT_EQ(job.run().code, 1) << "a second run has nothing to do";
}

TEST(ErrorLines, are_asked_again_when_that_is_wanted) {
  const LauncherJob job;
  const std::string wrong = completion("model", "Once", {{"model", "gpt-9"}, {"max_tokens", 4}});
  job.write_input(good("a") + wrong + good("b") + bad("c"));
  EXPECT_EQ(job.run().code, 1);
  const std::string first = golden::file_bytes(job.output());
  EXPECT_EQ(job.run().code, 1);
  EXPECT_EQ(golden::file_bytes(job.output()), first) << "error lines count as answered";

  const std::vector<std::string> again = {"--retry-errors=model_not_found", "--resume=force",
                                          "--set", "model.served_model_name=['*']"};
  const Ended ended = job.run(again);
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("1 error line: 1 not_in_this_version"));
  const Answers answers = job.answers();  // each id once
  EXPECT_EQ(answers.size(), 4U);
  EXPECT_TRUE(answers.at("model").ok()) << answers.at("model").record;
  EXPECT_EQ(answers.at("model").body().at("model"), "gpt-9");
  EXPECT_FALSE(answers.at("c").ok());
  const json report = report_of(job);
  EXPECT_EQ(report.at("requests").at("answered"), 3);
  EXPECT_EQ(report.at("errors").at("count"), 1);

  const Ended conflict = job.run({"--retry-errors", "--overwrite"});
  EXPECT_EQ(conflict.code, 2) << conflict.describe();
  const Ended ordered = job.run({"--retry-errors", "--set", "job.ordered=true"});
  EXPECT_EQ(ordered.code, 2) << ordered.describe();
  EXPECT_THAT(ordered.err, HasSubstr("--set job.ordered=false"));
}

TEST(Ordered, answers_stand_in_the_order_of_the_requests_also_of_a_job_that_goes_on) {
  std::string input;
  std::vector<std::string> ids;
  for (int i = 0; i < 60; ++i) {
    ids.push_back(fmt::format("r{:02}", i));
    const json body = {{"max_tokens", i % 7 == 0 ? 60 : 2}, {"ignore_eos", true}};
    input += i % 20 == 19 ? bad(ids.back()) : completion(ids.back(), "Once", body);
  }
  const auto order = [](const LauncherJob& job) {
    std::vector<std::string> found;
    for (const json& line : json_lines(job.output())) found.push_back(line.at("custom_id"));
    return found;
  };
  const LauncherJob job;
  job.write_input(input);
  const std::vector<std::string> ordered = {"--set", "job.ordered=true"};
  Ended ended = job.run(ordered);
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_EQ(order(job), ids);
  const std::string whole = golden::file_bytes(job.output());

  std::size_t cut = 0;
  for (int line = 0; line < 25; ++line) cut = whole.find('\n', cut) + 1;
  std::filesystem::resize_file(job.output(), cut + 30);
  ended = job.run(ordered);
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_EQ(golden::file_bytes(job.output()), whole);
  EXPECT_EQ(report_of(job).at("requests").at("answered"), 57);
  EXPECT_EQ(report_of(job).at("runs").size(), 2U);

  const Ended otherwise = job.run({"--set", "job.ordered=false", "--set", "job.max_failures=0"});
  EXPECT_EQ(otherwise.code, 2) << otherwise.describe();
  EXPECT_THAT(otherwise.err, HasSubstr("job.ordered was true, is false"));
}

TEST(JobFolder, is_none_of_the_current_one_for_standard_output_and_devices) {
  const LauncherJob job;
  job.write_input(good("a"));
  std::ofstream(job.folder() / "launch.sh")
      << "set -e\n"
      << "export TMPDIR=$PWD/tmp; mkdir tmp ro; cp cluster.yaml in.jsonl ro; chmod 500 ro; cd ro\n"
      << "for i in 1 2; do '" << launcher_file().string()
      << "' --config cluster.yaml --output - > ../out$i 2> ../err$i & done; wait\n"
      << "'" << launcher_file().string() << "' --config cluster.yaml --output /dev/null > ../null\n"
      << "cd ..; ls ro > listed; chmod 700 ro\n";
  const std::string command =
      fmt::format("cd '{}' && sh launch.sh > said 2>&1", job.folder().string());
  EXPECT_EQ(std::system(command.c_str()), 0) << golden::file_bytes(job.folder() / "said");
  EXPECT_EQ(golden::file_bytes(job.folder() / "listed"), "cluster.yaml\nin.jsonl\n");
  for (const char* run : {"1", "2"}) {
    const std::string err = golden::file_bytes(job.folder() / (std::string("err") + run));
    const std::string out = golden::file_bytes(job.folder() / (std::string("out") + run));
    EXPECT_THAT(out, HasSubstr("\"custom_id\":\"a\"")) << err;
    EXPECT_THAT(err, HasSubstr("logs and report: ")) << out;
  }
  EXPECT_FALSE(std::filesystem::exists("/dev/null.job"));
}

TEST(OtherWeights, of_the_same_shapes_are_not_gone_on_with) {
  const golden::TemporaryFolder root;
  const auto model = root.path() / "fable-moe";
  std::filesystem::copy(demo_model(), model);
  const LauncherJob job(model);
  job.write_input(good("a") + good("b"));
  ASSERT_EQ(job.run().code, 0);
  const auto whole = std::filesystem::file_size(job.output());
  std::filesystem::resize_file(job.output(), whole - 1);
  const auto shard = model / "model.safetensors";
  const auto now = std::filesystem::last_write_time(shard);
  std::filesystem::last_write_time(shard, now + std::chrono::hours(1));
  std::fstream weights(shard, std::ios::binary | std::ios::in | std::ios::out);
  weights.seekp(-2, std::ios::end);
  weights.put('\x3f').put('\x40');
  weights.close();
  const Ended ended = job.run();
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("the weights in model.safetensors was"));
}

}  // namespace
}  // namespace troupe::launcher_test
