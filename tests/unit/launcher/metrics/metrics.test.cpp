#include <filesystem>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "launcher/metrics/exposition.hpp"
#include "launcher/metrics/job_metrics.hpp"
#include "launcher/metrics/metrics_endpoint.hpp"
#include "launcher/metrics/metrics_server.hpp"
#include "tests/support/knocker.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr timeval patience{.tv_sec = 10, .tv_usec = 0};

/// Sends `request` to the port on 127.0.0.1 and reads until the other side is done.
std::string ask(std::uint16_t port, const std::string& request) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t got; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  return answer;
}

std::string get(std::uint16_t port, const std::string& path) {
  return ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

TEST(Exposition, writes_the_text_format_of_prometheus) {
  const double bounds[] = {0.5, 1};
  Histogram histogram(bounds);
  for (const double value : {0.25, 0.5, 0.75, 7.0}) histogram.observe(value);
  Exposition out(MetricLabels{{"model", "a \"b\"\\\n"}});
  out.gauge("load", "How busy.", 0.5);
  const std::pair<std::string, std::uint64_t> values[] = {{"stop", 3}, {"length", 0}};
  out.counters("done_total", "What is done.", "why", values);
  out.histogram("wait_seconds", "Waiting.", histogram);
  EXPECT_EQ(std::move(out).text(),
            "# HELP load How busy.\n"
            "# TYPE load gauge\n"
            "load{model=\"a \\\"b\\\"\\\\\\n\"} 0.5\n"
            "# HELP done_total What is done.\n"
            "# TYPE done_total counter\n"
            "done_total{model=\"a \\\"b\\\"\\\\\\n\",why=\"stop\"} 3\n"
            "done_total{model=\"a \\\"b\\\"\\\\\\n\",why=\"length\"} 0\n"
            "# HELP wait_seconds Waiting.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"0.5\"} 2\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"1\"} 3\n"
            "wait_seconds_bucket{model=\"a \\\"b\\\"\\\\\\n\",le=\"+Inf\"} 4\n"
            "wait_seconds_sum{model=\"a \\\"b\\\"\\\\\\n\"} 8.5\n"
            "wait_seconds_count{model=\"a \\\"b\\\"\\\\\\n\"} 4\n");
}

TEST(Exposition, has_no_byte_that_makes_all_of_it_unreadable) {
  Exposition out(MetricLabels{{"model", "Märchen\xff"}});
  out.gauge("load", "How busy.", 1);
  EXPECT_THAT(std::move(out).text(), HasSubstr("load{model=\"Märchen\uFFFD\"} 1\n"));
}

Completion answered(std::size_t prompt, std::size_t tokens, FinishReason reason) {
  Completion completion;
  completion.prompt_ids.resize(prompt);
  completion.choices.resize(1);
  completion.choices[0].token_ids.resize(tokens);
  completion.choices[0].finish_reason = reason;
  completion.first_token_us = 200'000;
  completion.last_token_us = 200'000 + 50'000 * (tokens - 1);
  return completion;
}

TEST(JobMetrics, tell_load_and_requests_under_the_names_of_vllm) {
  JobMetrics metrics("fable", 100);
  EngineReport report;
  report.stats.running = 3;
  report.stats.waiting = 4;
  report.stats.kv_use = 0.25;
  report.stats.output_tokens = 77;
  report.stats.scheduler.prompt_tokens = 75;
  report.stats.scheduler.recomputed_tokens = 15;  // after the two preemptions
  report.stats.scheduler.looked_up_tokens = 100;
  report.stats.scheduler.prefix_tokens = 40;
  report.stats.scheduler.preemptions = 2;
  report.stats.scheduler.swaps = 3;
  report.completions = {answered(7, 11, FinishReason::length), answered(60, 2, FinishReason::stop)};
  Completion refused;
  refused.error_code = "invalid_prompt";
  report.completions.push_back(refused);
  metrics.observe(report);
  metrics.count_line_error("invalid_json");
  metrics.count_recovery({.lost = {}});  // it has begun
  metrics.count_recovery({.lost = {}, .seconds = 0.25, .sequences = 7});
  metrics.count_recovery({.lost = {}, .seconds = 0.5, .sequences = 3});
  metrics.set_lines(4, 9);
  metrics.set_domains(2, 3);
  EXPECT_THAT(metrics.text(), Not(HasSubstr("rank_busy")));
  metrics.set_rank_busy({0.5, 0.75});
  const std::string text = metrics.text();
  const std::string labels = "{model_name=\"fable\",engine=\"0\"";
  for (const std::string& line : {
           "vllm:num_requests_running" + labels + "} 3",
           "vllm:num_requests_waiting" + labels + "} 4",
           "vllm:kv_cache_usage_perc" + labels + "} 0.25",
           "vllm:prefix_cache_queries_total" + labels + "} 100",
           "vllm:prefix_cache_hits_total" + labels + "} 40",
           "vllm:num_preemptions_total" + labels + "} 5",
           "troupe:swaps_total" + labels + "} 3",
           "vllm:prompt_tokens_total" + labels + "} 100",
           "vllm:generation_tokens_total" + labels + "} 77",
           "vllm:request_success_total" + labels + ",finished_reason=\"length\"} 1",
           "vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"0.1\"} 0",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"0.25\"} 2",
           "vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"2560\"} 2",
           "vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"0.3\"} 1",
           "vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"0.8\"} 2",
           "vllm:e2e_request_latency_seconds_count" + labels + "} 2",
           "vllm:request_time_per_output_token_seconds_bucket" + labels + ",le=\"0.025\"} 0",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"5\"} 0",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"10\"} 1",
           "vllm:request_prompt_tokens_bucket" + labels + ",le=\"100\"} 2",
           "vllm:request_generation_tokens_sum" + labels + "} 13",
           "troupe:line_errors_total" + labels + ",code=\"invalid_json\"} 1",
           "troupe:line_errors_total" + labels + ",code=\"invalid_prompt\"} 1",
           "troupe:rank_busy_ratio" + labels + ",rank=\"1\"} 0.75",
           "troupe:lines_done_total" + labels + "} 4",
           "troupe:step_domains" + labels + "} 3",
           "troupe:step_domains_serving" + labels + "} 2",
           "troupe:recoveries_total" + labels + "} 2",
           "troupe:recovery_seconds_total" + labels + "} 0.75",
           "troupe:recovered_sequences_total" + labels + "} 10",
           "troupe:input_lines" + labels + "} 9",
       }) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("le=\"200\"")));
}

TEST(MetricsServer, gives_the_content_of_the_moment_to_whoever_asks) {
  int asked = 0;
  const auto server = MetricsServer::start(
      "127.0.0.1", 0, [&] { return "asked " + std::to_string(++asked) + "\n"; });
  ASSERT_TRUE(server.ok()) << server.error().message;
  const std::uint16_t port = (*server)->port();
  EXPECT_EQ((*server)->url(), "http://127.0.0.1:" + std::to_string(port) + "/metrics");
  EXPECT_THAT(get(port, "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/plain; version=0.0.4"),
                    HasSubstr("\r\n\r\nasked 1\n")));
  EXPECT_THAT(get(port, "/metrics"), HasSubstr("asked 2\n"));
  EXPECT_THAT(get(port, "/"), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("/metrics")));
  EXPECT_THAT(ask(port,
                  "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
                  "Connection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask(port, "\x16\x03\x01 no HTTP at all\r\n\r\n"), Not(HasSubstr("asked")));
  EXPECT_THAT(get(port, "/metrics"), HasSubstr("asked 3\n"));
}

TEST(MetricsServer, answers_many_at_once_and_closes_its_port_at_the_end) {
  std::uint16_t port = 0;
  {
    const auto server = MetricsServer::start("127.0.0.1", 0, [] { return std::string("x\n"); });
    ASSERT_TRUE(server.ok()) << server.error().message;
    port = (*server)->port();
    std::vector<std::thread> clients;
    std::vector<std::string> answers(8);
    for (std::string& answer : answers) {
      clients.emplace_back([&answer, port] { answer = get(port, "/metrics"); });
    }
    for (std::thread& client : clients) client.join();
    for (const std::string& answer : answers) EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(get(port, "/metrics"), "");
}

TEST(MetricsServer, answers_while_strangers_hold_all_the_connections_they_can) {
  const auto server = MetricsServer::start("127.0.0.1", 0, [] { return std::string("x\n"); });
  ASSERT_TRUE(server.ok()) << server.error().message;
  const std::uint16_t port = (*server)->port();
  const test::Knocker knocker(test::Knocker::to_port(port), {.idle = 300});
  while (knocker.connections() < 1000) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) EXPECT_THAT(get(port, "/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST(MetricsServer, says_what_port_cannot_be_opened_and_why) {
  const auto content = [] { return std::string(); };
  const auto first = MetricsServer::start("127.0.0.1", 0, content);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = MetricsServer::start("127.0.0.1", (*first)->port(), content);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr("127.0.0.1:" + std::to_string((*first)->port())),
                    HasSubstr("Address already in use")));
  const auto nowhere = MetricsServer::start("localhost", 0, content);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, AllOf(HasSubstr("metrics.address"), HasSubstr("localhost")));
}

TEST(MetricsEndpoint, removes_what_a_killed_run_left_also_when_metrics_are_off) {
  const tests::TemporaryFolder folder;
  const auto note = folder.write("metrics.txt", "http://127.0.0.1:1/metrics\n");
  Config config;
  const auto endpoint = MetricsEndpoint::open(config, 16, folder.path().string());
  EXPECT_TRUE(endpoint.ok());
  EXPECT_FALSE(std::filesystem::exists(note));
}

}  // namespace
}  // namespace troupe
