#include "runtime/node/polled_fd.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/epoll.h>

#include "runtime/base/log.hpp"

namespace troupe {

PolledFd::PolledFd(PolledFd&& other) noexcept
    : epoll_(other.epoll_),
      fd_(other.fd_),
      tag_(other.tag_),
      events_(std::exchange(other.events_, 0)) {
  other.fd_ = -1;
}

PolledFd& PolledFd::operator=(PolledFd&& other) noexcept {
  if (this == &other) return *this;
  wait_for(0);
  epoll_ = other.epoll_;
  fd_ = std::exchange(other.fd_, -1);
  tag_ = other.tag_;
  events_ = std::exchange(other.events_, 0);
  return *this;
}

void PolledFd::wait_for(std::uint32_t events) {
  if (fd_ < 0 || events == events_) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_;
  const int operation = events == 0 ? EPOLL_CTL_DEL : events_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_, operation, fd_, &event) == 0) {
    events_ = events;
  } else {
    log::error("cannot wait for a descriptor: {}", std::strerror(errno));
  }
}

}  // namespace troupe
