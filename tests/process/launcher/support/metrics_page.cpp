#include "tests/process/launcher/support/metrics_page.hpp"

#include <cstdint>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {
namespace {

constexpr timeval patience{.tv_sec = 10, .tv_usec = 0};

}  // namespace

std::string scrape(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t got; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  const auto body = answer.find("\r\n\r\n");
  return answer.starts_with("HTTP/1.1 200") && body != answer.npos ? answer.substr(body + 4) : "";
}

int metrics_port(const std::filesystem::path& job_folder) {
  const std::string url = golden::file_bytes(job_folder / "metrics.txt");
  const auto colon = url.rfind(':');
  EXPECT_TRUE(url.starts_with("http://127.0.0.1:") && url.ends_with("/metrics\n")) << url;
  return colon == url.npos ? 0 : std::stoi(url.substr(colon + 1));
}

}  // namespace troupe::launcher_test
