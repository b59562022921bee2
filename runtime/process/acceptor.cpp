#include "runtime/process/acceptor.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

namespace troupe {
namespace {

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Acceptor::Acceptor(UniqueFd listener, Limits limits)
    : listener_(std::move(listener)), reserve_(open_reserve()), limits_(limits) {}

UniqueFd Acceptor::accept(Clock::time_point now) {
  if (rests(now)) return {};
  if (accepted_ == limits_.burst) {
    accepted_ = 0;
    rests_until_ = now + limits_.pause;
    return {};
  }
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) return ++accepted_, std::move(socket);
    // A connection that has already failed leaves the queue with these errors: try the next one.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno != EAGAIN) turn_away(now);
    accepted_ = 0;
    return {};
  }
}

void Acceptor::turn_away(Clock::time_point now) {
  rests_until_ = now + limits_.pause_without_descriptors;
  reserve_.reset();
  for (int i = 0; i < limits_.burst; ++i) {
    const UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) break;
    ++turned_away_;
  }
  reserve_ = open_reserve();
}

std::size_t Acceptor::take_turned_away() { return std::exchange(turned_away_, 0); }

}  // namespace troupe
