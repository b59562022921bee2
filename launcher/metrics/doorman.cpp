#include "launcher/metrics/doorman.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "runtime/base/log.hpp"

namespace troupe {

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
    while (const auto silent = strangers_.overdue(now)) refuse(*silent, "silent");
    if (const auto line = refusals_.take_line(now); !line.empty()) log::warning("{}", line);
  }
}

/// Waits for something to do, and lets those in that have said something.
void Doorman::wait() {
  const auto now = Clock::now();
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                             {acceptor_.rests(now) ? -1 : acceptor_.fd(), POLLIN, 0}};
  for (const auto& [fd, socket] : waiting_) polled.push_back({fd, POLLIN, 0});
  auto until = std::min(strangers_.due(), refusals_.due());
  if (acceptor_.rests(now)) until = std::min(until, acceptor_.rests_until());
  constexpr std::chrono::milliseconds longest{60000};
  const auto wait = until > now + longest
                        ? longest
                        : std::chrono::ceil<std::chrono::milliseconds>(std::max(until, now) - now);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait.count())) <= 0) return;
  for (std::size_t i = 2; i < polled.size(); ++i) {
    if (polled[i].revents != 0) let_in(polled[i].fd);
  }
}

void Doorman::let_in(int fd) {
  char byte = 0;
  if (::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return refuse(fd, "silent");
  strangers_.remove(fd);
  auto connection = waiting_.extract(fd);
  admit_(std::move(connection.mapped()));
}

void Doorman::accept_all(Clock::time_point now) {
  while (UniqueFd socket = acceptor_.accept(now)) {
    if (const auto dropped = strangers_.add(socket.get(), now)) {
      refusals_.note("too many strangers");
      waiting_.erase(*dropped);
    }
    const int fd = socket.get();
    waiting_.emplace(fd, std::move(socket));
  }
  refusals_.note("no descriptors left", acceptor_.take_turned_away());
}

void Doorman::refuse(int fd, std::string_view why) {
  refusals_.note(why);
  strangers_.remove(fd);
  waiting_.erase(fd);
}

}  // namespace troupe
