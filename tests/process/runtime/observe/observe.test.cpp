#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"
#include "tests/support/hosts/test_hosts.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/trace_events.hpp"
#include "tests/support/trace_flows.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;

/// A bound for waits that end at once when all is well; generous, because machines are busy.
constexpr auto limit = 40s;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The value of a sample, by its name and labels as they are in the text; below 0 if it has none.
double sample(const std::string& text, const std::string& series) {
  const auto at = text.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
}

/// A running program with a cluster, and `troupe`, over so many hosts; 0: on this one.
class Observe : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == 0) return;
    if (const auto missing = missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }

  std::string home() const { return folder_.path().string(); }
  std::string printed() const { return text_of(folder_.path() / "program.out"); }
  ChildProcess start(std::vector<std::string> words, const std::string& output) const {
    words.insert(words.begin(), {"env", "--default-signal=TERM,INT"});
    auto process = ChildProcess::start({.arguments = words,
                                        .output_path = output,
                                        .program = "env",
                                        .environment = {"XDG_STATE_HOME=" + home()}});
    if (!process.ok()) throw std::runtime_error(process.error().message);
    return *std::move(process);
  }
  template <class Ready>
  void wait_until(const Ready& ready, const char* what) const {
    const auto until = Clock::now() + limit;
    while (!ready()) {
      if (Clock::now() > until) throw std::runtime_error(fmt::format("{}: {}", what, printed()));
      std::this_thread::sleep_for(10ms);
    }
  }
  ChildProcess start_program() const {
    auto program = start({fmt::format("/proc/{}/exe", ::getpid()), "--watched", "watched",
                          home() + "/logs", std::to_string(GetParam())},
                         home() + "/program.out");
    wait_until([&] { return printed().find("ready") != std::string::npos; }, "it is not ready");
    return program;
  }
  struct Said {
    int code = -1;
    std::string text;
  };
  Said troupe(std::vector<std::string> words) {
    const std::string output = home() + "/said" + std::to_string(++said_);
    words.insert(words.begin(), TROUPE_TOOL);
    auto process = start(words, output);
    const auto status = process.wait(limit);
    return {status && !status->signalled ? status->code : -1, text_of(output)};
  }
  json actor(const std::string& name) {
    const Said said = troupe({"actors", "--json"});
    if (said.code != 0) throw std::runtime_error(said.text);
    const json all = json::parse(said.text);
    for (const json& one : all["actors"]) {
      if (one["name"] == name) return one;
    }
    throw std::runtime_error(all.dump());
  }

 private:
  const tests::TemporaryFolder folder_;
  int said_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Hosts, Observe, testing::Values(0, 2));

TEST_P(Observe, metrics_are_the_sum_of_all_processes_and_their_counts_outlive_them) {
  const auto program = start_program();
  std::string text;
  const std::string answers = "test_answers_total{by=\"back\"}";
  wait_until(
      [&] {
        text = troupe({"metrics"}).text;
        return sample(text, answers) >= 3;
      },
      "nothing is counted");
  EXPECT_THAT(text, AllOf(HasSubstr("# TYPE test_answers_total counter\n"),
                          HasSubstr("# HELP test_answers_total Answers.\n")));
  EXPECT_GE(sample(text, "test_rounds_total"), 1) << "of the driver";
  EXPECT_GE(sample(text, "test_ask_seconds_count"), 1) << text;
  const std::string labels = "{actor_type=\"Back\",method=\"answer\"}";
  EXPECT_GE(sample(text, "troupe_calls_made_total" + labels), 3) << text;
  EXPECT_GE(sample(text, "troupe_calls_served_total" + labels), 3);
  EXPECT_GE(sample(text, "troupe_calls_made_total{actor_type=\"Front\",method=\"ask\"}"), 1);
  EXPECT_GE(sample(text,
                   "troupe_calls_failed_total{actor_type=\"Back\",code=\"unsupported\","
                   "method=\"refuse\"}"),
            3);
  EXPECT_GT(sample(text, "troupe_link_sent_bytes_total"), 0);
  EXPECT_EQ(sample(text, "troupe_actors{actor_type=\"Back\"}"), 1);
  EXPECT_EQ(sample(text, "troupe_nodes{state=\"alive\"}"), std::max(1, GetParam()));

  const double before = sample(text, answers);
  if (GetParam() == 0) {
    ASSERT_EQ(::kill(actor("back")["pid"].get<int>(), SIGKILL), 0);
  } else {
    on_host(2, fmt::format("kill -9 {}", actor("back")["pid"].get<int>()));
  }
  wait_until(
      [&] {
        text = troupe({"metrics"}).text;
        EXPECT_GE(sample(text, answers), before) << "no counter ever falls";
        return sample(text, answers) > before &&
               sample(text, "troupe_actor_restarts_total{actor_type=\"Back\"}") == 1;
      },
      "the next incarnation counts nothing");
  EXPECT_EQ(sample(text, "troupe_actors_ended_total{actor_type=\"Back\",cause=\"signal\"}"), 1)
      << text;
}

TEST_P(Observe, the_stack_of_an_actor_is_read_also_while_it_is_stopped) {
  if (!find_program("eu-stack").ok()) GTEST_SKIP() << "elfutils is not installed";
  const auto program = start_program();
  const int pid = actor("back")["pid"];
  const auto signal = [&](const char* name) {
    if (GetParam() == 0) {
      EXPECT_EQ(::kill(pid, std::string_view(name) == "STOP" ? SIGSTOP : SIGCONT), 0);
    } else {
      on_host(2, fmt::format("kill -{} {}", name, pid));
    }
  };
  const Said busy = troupe({"stack", "back"});
  EXPECT_EQ(busy.code, 0) << busy.text;
  EXPECT_THAT(busy.text, AllOf(HasSubstr(fmt::format("(pid {}) on node", pid)),
                               HasSubstr("\nthread "), HasSubstr("#0 ")));
  signal("STOP");
  const Said stopped = troupe({"stack", "back", "--json"});
  signal("CONT");
  ASSERT_EQ(stopped.code, 0) << stopped.text;
  EXPECT_THAT(json::parse(stopped.text)["stack"].get<std::string>(), HasSubstr("#0 "));
  const Said none = troupe({"stack", "nobody"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.text, HasSubstr("nobody"));
}

TEST_P(Observe, the_timeline_has_flows_from_each_call_to_where_it_ran) {
  const auto program = start_program();
  const std::string trace = home() + "/trace.json";
  const Said said = troupe({"timeline", "--seconds", "1", "-o", trace, "--json"});
  ASSERT_EQ(said.code, 0) << said.text;
  const json whole = json::parse(text_of(trace));
  const json events = whole["traceEvents"];
  EXPECT_THAT(tests::TraceEvents::mistakes_of(whole), IsEmpty());
  // The clocks of two hosts are known to about the time of a message.
  EXPECT_THAT(broken_flows(events, GetParam() == 0 ? 0 : 5000), IsEmpty());
  EXPECT_GT(count_of(events, "s"), 3U);
  EXPECT_GT(spans_named(events, "Front.ask").size(), 0U);
  EXPECT_GT(spans_named(events, "Back.answer").size(), 0U);
  EXPECT_GT(spans_named(events, "call Front.ask").size(), 0U);
  EXPECT_GT(count_of(events, "b"), 0U);
  EXPECT_EQ(count_of(events, "b"), count_of(events, "e"));
  // A coroutine runs twice, before and after its wait.
  const auto suspended = std::ranges::count_if(events, [](const json& event) {
    return event["ph"] == "b" && event["cat"] == "suspended" && event["name"] == "Back.doze";
  });
  EXPECT_GT(suspended, 0);
  EXPECT_GE(spans_named(events, "Back.doze").size(), 2 * static_cast<std::size_t>(suspended));
}

TEST_P(Observe, actors_tell_how_many_calls_they_have_and_run) {
  const auto program = start_program();
  json front;
  wait_until(
      [&] {
        front = actor("front");
        return front["calls_per_second"].is_number() && front["calls_per_second"] > 0;
      },
      "no calls are counted");
  EXPECT_GT(front["calls"], 0);
  EXPECT_LE(front["queued"], 1);
}

TEST_P(Observe, what_actors_print_appears_at_the_driver_once) {
  const auto program = start_program();
  const std::string node = GetParam() == 0 ? "node0" : "node1";
  wait_until([&] { return printed().find("[repeated") != std::string::npos; }, "no line is folded");
  const int pid = actor("back")["pid"];
  const std::string source = fmt::format("(back pid={}, {}) ", pid, node);
  EXPECT_THAT(printed(),
              AllOf(HasSubstr(source + "back is made\n"), HasSubstr(source + "again and again\n"),
                    HasSubstr(source + "again and again [repeated 2x by 1 process]\n")));
  EXPECT_THAT(troupe({"logs", "back"}).text, HasSubstr("back is made\n")) << "the log has it, too";
}

/// What the port answers to a GET of /metrics.
std::string scrape(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  constexpr std::string_view request =
      "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  return answer;
}

TEST_P(Observe, metrics_are_served_to_scrapers_until_the_cluster_ends) {
  auto program = start_program();
  const std::string output = home() + "/served";
  auto server = start({TROUPE_TOOL, "metrics", "watched", "--listen", "0"}, output);
  wait_until([&] { return text_of(output).find("/metrics\n") != std::string::npos; }, "no url");
  const std::string url = text_of(output);
  const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  EXPECT_THAT(url, HasSubstr("http://127.0.0.1:"));
  double last = -1;
  for (int i = 0; i < 20; ++i) {
    const std::string text = scrape(port);
    EXPECT_THAT(text, HasSubstr("HTTP/1.1 200"));
    const double rounds = sample(text, "test_rounds_total");
    EXPECT_GE(rounds, last) << text.substr(0, 1000);
    last = rounds;
  }
  EXPECT_GT(last, 0);
  program.signal(SIGTERM);
  ASSERT_TRUE(program.wait(limit));
  const auto ended = server.wait(limit);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code, 0);
}

}  // namespace
}  // namespace troupe::test
