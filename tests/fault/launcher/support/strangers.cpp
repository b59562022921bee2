#include "tests/fault/launcher/support/strangers.hpp"

#include <deque>
#include <set>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/time.h>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/support/another_uid.hpp"
#include "tests/support/knocker.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

std::vector<Knocker::Connect> ways_to(const LauncherRun::Listeners& listeners) {
  std::vector<Knocker::Connect> ways;
  for (const auto& name : listeners.abstract) ways.push_back(Knocker::to_abstract(name));
  for (const auto port : listeners.ports) ways.push_back(Knocker::to_port(port));
  return ways;
}

/// This process's limit of descriptors, raised to its maximum.
rlim_t raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

/// A process of another user that knocks too, as long as the object lives.
class ForeignKnocker {
 public:
  ForeignKnocker(const std::vector<Knocker::Connect>& ways, int knocks_per_second) {
    int ends[2];
    if (!can_change_uid() || ::pipe2(ends, O_CLOEXEC) != 0) return;
    stop_.reset(ends[1]);
    const UniqueFd stopped(ends[0]);
    child_ = ::fork();
    if (child_ != 0) return;
    stop_.reset();
    constexpr uid_t nobody = 65534;
    if (::setuid(nobody) != 0) ::_exit(1);
    {
      std::deque<Knocker> knockers;
      for (const auto& way : ways) {
        knockers.emplace_back(
            way, Knocker::Options{.idle = 100, .knocks_per_second = knocks_per_second});
      }
      char byte = 0;
      (void)!::read(stopped.get(), &byte, 1);  // ends with the other end of the pipe
    }
    ::_exit(0);
  }
  ~ForeignKnocker() {
    stop_.reset();
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  ForeignKnocker(const ForeignKnocker&) = delete;
  ForeignKnocker& operator=(const ForeignKnocker&) = delete;

 private:
  UniqueFd stop_;
  pid_t child_ = -1;
};

/// The first 12 bytes of the answer to a scrape: "HTTP/1.1 200"; or an error.
std::string scrape(int port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  constexpr std::string_view request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return fmt::format("port {}: {}", port, std::strerror(errno));
  }
  std::array<char, 12> answer{};
  const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), MSG_WAITALL);
  if (got < 0) return fmt::format("no answer: {}", std::strerror(errno));
  return {answer.data(), static_cast<std::size_t>(got)};
}

std::vector<std::string> failed_requests(const std::string& output) {
  std::vector<std::string> failed;
  std::istringstream lines(output.substr(0, output.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    const auto answer = nlohmann::json::parse(line, nullptr, false);
    if (!answer.is_object() || !answer.contains("error") || !answer["error"].is_null()) {
      failed.push_back(line.substr(0, 200));
    }
  }
  return failed;
}

std::set<int> pids_of(const LauncherRun& run) {
  std::set<int> pids;
  for (const JobProcess& process : run.processes()) pids.insert(process.pid);
  return pids;
}

}  // namespace

void expect_a_job_to_bear_strangers(const StrangersOptions& options) {
  auto run = LauncherRun::start(options.parallel, 20000, 200, "metrics: {port: 0}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(1, 60s * time_scale)) << run->stderr_text();
  const auto listeners = run->listeners();
  ASSERT_GE(listeners.abstract.size(), 4U) << "the driver, the executor and two workers";
  ASSERT_GE(listeners.ports.size(), 2U) << "control and metrics";
  const auto ways = ways_to(listeners);
  const auto room = static_cast<int>(raise_descriptor_limit() - 1024);
  const int idle = std::min(options.idle, room / static_cast<int>(ways.size()) - 64);
  if (idle < options.idle) std::printf("%d idle connections a listener, by `ulimit -Hn`\n", idle);

  const auto processes = pids_of(*run);
  const std::size_t lines_before = run->log_lines();
  const std::string output_before = run->output_text();
  {
    const ForeignKnocker foreign(ways, options.knocks_per_second);
    std::deque<Knocker> knockers;
    for (const auto& way : ways) {
      knockers.emplace_back(
          way, Knocker::Options{.idle = idle, .knocks_per_second = options.knocks_per_second});
    }
    const auto end = Clock::now() + options.duration;
    const auto patience = end + 60s * time_scale;
    const auto answers_come = [&] { return run->output_text().size() > output_before.size(); };
    while (Clock::now() < end || (!answers_come() && Clock::now() < patience)) {
      EXPECT_EQ(scrape(run->metrics_port()), "HTTP/1.1 200");
      std::this_thread::sleep_for(500ms);  // the interval between scrapes
    }
    for (const Knocker& knocker : knockers) EXPECT_GT(knocker.connections(), idle);
  }
  EXPECT_EQ(pids_of(*run), processes) << run->stderr_text();
  const std::string output = run->output_text();
  EXPECT_GT(output.size(), output_before.size()) << "no answer came meanwhile";
  EXPECT_EQ(failed_requests(output), std::vector<std::string>());
  const std::size_t lines = run->log_lines() - lines_before;
  std::printf("%zu listeners, %zu lines of log, %zu bytes of answers meanwhile\n", ways.size(),
              lines, output.size() - output_before.size());
  EXPECT_LE(lines, 100U);
}

}  // namespace troupe::test
