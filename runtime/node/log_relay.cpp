#include "runtime/node/log_relay.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/line_file.hpp"

namespace troupe {
namespace {

/// A line that is longer is cut into several.
constexpr std::size_t longest_line = std::size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<LogRelay>> LogRelay::start(const std::string& path) {
  TROUPE_TRY(LineFile file, LineFile::open(path));
  auto shared = std::make_shared<LineFile>(std::move(file));
  return start([shared](std::string_view lines) { shared->append(lines); });
}

Result<std::unique_ptr<LogRelay>> LogRelay::start(std::function<void(std::string_view)> take) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make the pipe of a log");
  UniqueFd output(ends[0]), input(ends[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  UniqueFd ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended) return fail_errno(errno, "cannot make the eventfd of a log");
  std::unique_ptr<LogRelay> relay(
      new LogRelay(std::move(take), std::move(input), std::move(output), std::move(ended)));
  relay->thread_ = std::thread([self = relay.get()] { self->run(); });
  return relay;
}

void LogRelay::finish() {
  if (!thread_.joinable()) return;
  input_.reset();
  ::eventfd_write(ended_.get(), 1);
  thread_.join();
}

void LogRelay::run() {
  pollfd polled[] = {{output_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(polled, 2, -1) < 0 && errno != EINTR) break;
    const bool is_last = polled[1].revents != 0;
    if (!take() || is_last) break;
  }
  if (!unfinished_.empty()) take_(std::exchange(unfinished_, {}) + "\n");
}

/// Copies what can be read now; false once there will be no more.
bool LogRelay::take() {
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    unfinished_.append(buffer.data(), static_cast<std::size_t>(got));
    if (unfinished_.size() > longest_line && unfinished_.find('\n') == std::string::npos) {
      unfinished_ += '\n';
    }
    const std::size_t end = unfinished_.rfind('\n');
    if (end == std::string::npos) continue;
    take_(std::string_view(unfinished_).substr(0, end + 1));
    unfinished_.erase(0, end + 1);
  }
}

}  // namespace troupe
