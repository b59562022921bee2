#include "tests/process/collectives/forked_ranks.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe::test {

namespace {

struct Child {
  pid_t pid = -1;
  UniqueFd complaint;
};

Child start(int rank, const RankBody& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    const std::string complaint = body(rank);
    const auto size = std::min<std::size_t>(complaint.size(), 4000);
    const auto written = ::write(ends[1], complaint.data(), size);
    ::_exit(written == static_cast<ssize_t>(size) ? 0 : 3);
  }
  ::close(ends[1]);
  return {pid, UniqueFd(ends[0])};
}

// Returns the child's complaint, once its end of the pipe is closed.
std::string finish(Child& child, std::chrono::steady_clock::time_point deadline) {
  std::string complaint;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd item{child.complaint.get(), POLLIN, 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::max<long>(0, left.count())));
    if (ready == 0) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
      return "not done in time, killed";
    }
    std::array<char, 4096> buffer;
    const ssize_t bytes = ::read(child.complaint.get(), buffer.data(), buffer.size());
    if (bytes <= 0) break;
    complaint.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("died of signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("exit status {}", WEXITSTATUS(status));
  return complaint;
}

}  // namespace

std::vector<std::string> run_forked(int ranks, const RankBody& body, int limit_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(limit_seconds);
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(start(rank, body));
  std::vector<std::string> complaints;
  for (Child& child : children) complaints.push_back(finish(child, deadline));
  return complaints;
}

}  // namespace troupe::test
