#include "tests/bench/compare_ray/remote_shell.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace troupe::bench {
namespace {

struct Pipe {
  UniqueFd read, write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::io, "no pipe: {}", std::strerror(errno));
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

Result<RemoteShell> RemoteShell::start(const std::string& host) {
  TROUPE_TRY(Pipe to, make_pipe());
  TROUPE_TRY(Pipe from, make_pipe());
  ChildOptions options;
  options.arguments = {"sh"};
  if (!host.empty()) options.arguments = {"ssh", host, "sh"};
  options.program = options.arguments.front();
  options.input_fd = to.read.get();
  options.stdout_fd = from.write.get();
  TROUPE_TRY(auto process, ChildProcess::start(options));
  RemoteShell shell(std::move(process), std::move(to.write), std::move(from.read));
  TROUPE_CHECK(shell.send("echo ready"));
  constexpr int limit_ms = 30'000;
  pollfd answer{shell.from_.get(), POLLIN, 0};
  std::array<char, 16> text{};
  if (::poll(&answer, 1, limit_ms) != 1 ||
      ::read(shell.from_.get(), text.data(), text.size()) <= 0) {
    return fail(ErrorCode::io, "the shell{} does not answer",
                host.empty() ? std::string() : " on " + host);
  }
  return shell;
}

Result<void> RemoteShell::send(const std::string& command) {
  const std::string line = command + "\n";
  const auto written = ::write(to_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  return fail(ErrorCode::io, "the shell does not take '{}'", command);
}

}  // namespace troupe::bench
