#include "runtime/http/metrics_server.hpp"

#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/knocker.hpp"

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

TEST(MetricsServer, tells_a_scraper_that_there_are_no_metrics_at_the_moment) {
  const auto server = MetricsServer::start("127.0.0.1", 0, [] { return std::string(); });
  ASSERT_TRUE(server.ok()) << server.error().message;
  EXPECT_THAT(get((*server)->port(), "/metrics"), StartsWith("HTTP/1.1 503"));
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
  EXPECT_THAT(nowhere.error().message, AllOf(HasSubstr("numeric"), HasSubstr("localhost")));
}

}  // namespace
}  // namespace troupe
