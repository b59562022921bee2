#include "runtime/http/doorman.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "runtime/base/log.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_head_bytes = 8192;
/// A connection with an unfinished request is always readable, so poll would not wait for it.
constexpr std::chrono::milliseconds look_again{20};

}  // namespace

Result<std::unique_ptr<Doorman>> Doorman::start(std::string name, UniqueFd listener,
                                                std::function<void(UniqueFd)> admit) {
  std::unique_ptr<Doorman> doorman(
      new Doorman(std::move(name), std::move(listener), std::move(admit)));
  doorman->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorman->wake_) return fail_errno(errno, "cannot make an eventfd");
  try {
    doorman->thread_ = std::thread([self = doorman.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "cannot start a thread: {}", error.what());
  }
  return doorman;
}

Doorman::~Doorman() {
  over_ = true;
  ::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void Doorman::run() {
  while (!over_) {
    wait();
    const auto now = Clock::now();
    accept_all(now);
    while (const auto late = strangers_.overdue(now)) refuse(*late, "without a request");
    if (const auto line = refusals_.take_line(now); !line.empty()) log::warning("{}", line);
  }
}

/// Waits for something to do, and admits connections that have sent a request.
void Doorman::wait() {
  const auto now = Clock::now();
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                             {acceptor_.rests(now) ? -1 : acceptor_.fd(), POLLIN, 0}};
  const std::vector<int> unfinished(unfinished_.begin(), unfinished_.end());
  for (const auto& [fd, socket] : waiting_) {
    if (!unfinished_.contains(fd)) polled.push_back({fd, POLLIN, 0});
  }
  auto until = std::min(strangers_.due(), refusals_.due());
  if (!unfinished.empty()) until = std::min(until, now + look_again);
  if (acceptor_.rests(now)) until = std::min(until, acceptor_.rests_until());
  constexpr std::chrono::milliseconds longest{60000};
  const auto wait = until > now + longest
                        ? longest
                        : std::chrono::ceil<std::chrono::milliseconds>(std::max(until, now) - now);
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  for (const int fd : unfinished) look_at(fd);
  for (std::size_t i = 2; ready > 0 && i < polled.size(); ++i) {
    if (polled[i].revents != 0) look_at(polled[i].fd);
  }
}

void Doorman::look_at(int fd) {
  std::array<char, max_head_bytes> head;
  const ssize_t got = ::recv(fd, head.data(), head.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) return refuse(fd, "without a request");
  const std::string_view said(head.data(), static_cast<std::size_t>(got));
  if (said.find("\r\n\r\n") == said.npos) {
    if (said.size() == head.size()) return refuse(fd, "without a request");
    pollfd ended{fd, POLLRDHUP, 0};
    if (::poll(&ended, 1, 0) > 0) return refuse(fd, "without a request");
    unfinished_.insert(fd);
    return;
  }
  unfinished_.erase(fd);
  strangers_.remove(fd);
  auto connection = waiting_.extract(fd);
  admit_(std::move(connection.mapped()));
}

void Doorman::accept_all(Clock::time_point now) {
  while (UniqueFd socket = acceptor_.accept(now)) {
    if (const auto dropped = strangers_.add(socket.get(), now)) {
      refusals_.note("too many strangers");
      unfinished_.erase(*dropped);
      waiting_.erase(*dropped);
    }
    const int fd = socket.get();
    waiting_.emplace(fd, std::move(socket));
    look_at(fd);  // most sent their request while waiting in the kernel and displace no other
  }
  refusals_.note("no descriptors left", acceptor_.take_turned_away());
}

void Doorman::refuse(int fd, std::string_view why) {
  refusals_.note(why);
  strangers_.remove(fd);
  unfinished_.erase(fd);
  waiting_.erase(fd);
}

}  // namespace troupe
