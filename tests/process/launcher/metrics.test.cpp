// Prometheus metrics of a running job.
#include <csignal>
#include <map>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/metrics_page.hpp"
#include "tests/support/regex.hpp"

namespace troupe::launcher_test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::chrono::milliseconds event_limit = seconds(30);

/// Samples by name and labels, as written. A line that is not in the text format fails the test.
std::map<std::string, double> samples_of(const std::string& text) {
  const std::string comment = R"(# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* .+)";
  const std::string sample =
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\}) ([-+0-9.e]+))re";
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (const auto found = test::regex_match(line, sample); !found.empty()) {
      EXPECT_TRUE(samples.emplace(found[1], std::stod(found[2])).second) << "twice: " << line;
    } else {
      EXPECT_FALSE(test::regex_match(line, comment).empty()) << "not of the text format: " << line;
    }
  }
  return samples;
}

std::string labelled(const std::string& name, const std::string& more = "") {
  return name + R"({model_name="fable-moe",engine="0")" + more + "}";
}

TEST(Metrics, of_a_running_job_are_there_for_prometheus_and_gone_with_it) {
  std::string input = "no JSON\n";
  for (int i = 0; i < 20'000; ++i) {
    input += completion(fmt::format("r{}", i), {326, 369, 524},
                        {{"max_tokens", 17 + 5 * (i % 7)}, {"ignore_eos", true}});
  }
  const LauncherJob job;
  job.write_input(input);
  const auto launcher = job.start({"--set", "metrics.port=0", "--set", "engine.max_num_seqs=8"});
  ASSERT_TRUE(launcher->wait_for_lines(job.output(), 20, event_limit))
      << launcher->wait({}).describe();
  const int port = metrics_port(job.folder() / "out.jsonl.job");
  const std::string first_text = scrape(port);
  const auto first = samples_of(first_text);
  EXPECT_THAT(first_text, HasSubstr("# TYPE vllm:e2e_request_latency_seconds histogram\n"));
  ASSERT_TRUE(first.contains(labelled("vllm:num_requests_running"))) << first_text;
  EXPECT_GT(first.at(labelled("vllm:num_requests_running")), 0);
  EXPECT_GT(first.at(labelled("vllm:num_requests_waiting")), 0);
  EXPECT_GT(first.at(labelled("vllm:kv_cache_usage_perc")), 0);
  EXPECT_GE(first.at(labelled("vllm:generation_tokens_total")), 19 * 17);
  EXPECT_GE(first.at(labelled("vllm:prompt_tokens_total")), 19 * 3);
  EXPECT_EQ(first.at(labelled("troupe:input_lines")), 20'001);
  EXPECT_EQ(first.at(labelled("troupe:line_errors_total", R"(,code="invalid_json")")), 1);
  const auto answered = labelled("vllm:request_success_total", R"(,finished_reason="length")");
  EXPECT_GE(first.at(answered), 19);
  EXPECT_EQ(first.at(answered), first.at(labelled("vllm:e2e_request_latency_seconds_count")));
  EXPECT_EQ(first.at(answered),
            first.at(labelled("vllm:time_to_first_token_seconds_bucket", R"(,le="+Inf")")));
  ASSERT_TRUE(launcher->wait_for_lines(job.output(), 60, event_limit));
  const auto second = samples_of(scrape(port));
  EXPECT_GT(second.at(answered), first.at(answered)) << "counters stand still";
  launcher->signal(SIGTERM);
  const Ended ended = launcher->wait(seconds(15));
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_EQ(scrape(port), "");
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "out.jsonl.job/metrics.txt"));
}

TEST(Metrics, whose_port_is_taken_are_refused_before_anything_starts) {
  const LauncherJob job;
  job.write_input(completion("r1", {1, 2, 3}, {{"max_tokens", 2}}));
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  ASSERT_EQ(::bind(taken, address, size), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ASSERT_EQ(::getsockname(taken, address, &size), 0);
  const std::string port = fmt::format("{}", ntohs(at.sin_port));
  const Ended ended = job.run({"--set", "metrics.port=" + port});
  ::close(taken);
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("127.0.0.1:" + port));
  EXPECT_THAT(ended.err, HasSubstr("Address already in use"));
  EXPECT_FALSE(std::filesystem::exists(job.output()));
}

TEST(Metrics, that_nobody_asked_for_open_no_port) {
  const LauncherJob job;
  job.write_input(completion("r1", {1, 2, 3}, {{"max_tokens", 2}}));
  EXPECT_EQ(job.run().code, 0);
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "out.jsonl.job/metrics.txt"));
  const std::string log = golden::file_bytes(job.folder() / "out.jsonl.job/launcher.log");
  EXPECT_EQ(log.find("metrics"), log.npos) << log;
}

}  // namespace
}  // namespace troupe::launcher_test
