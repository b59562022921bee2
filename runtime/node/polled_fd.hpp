#pragma once

#include <cstdint>

namespace troupe {

/// A descriptor in an epoll set, which events name by a tag. It leaves the set with this object,
/// and so it should before it is closed: a process that is just being started may have it open
/// still. Not synchronised.
class PolledFd {
 public:
  PolledFd() = default;
  PolledFd(int epoll, int fd, std::uint64_t tag) : epoll_(epoll), fd_(fd), tag_(tag) {}
  PolledFd(PolledFd&& other) noexcept;
  PolledFd& operator=(PolledFd&& other) noexcept;
  ~PolledFd() { wait_for(0); }

  /// What is waited for from now on: EPOLLIN, EPOLLOUT, both, or 0 for nothing, not even its end.
  void wait_for(std::uint32_t events);

 private:
  int epoll_ = -1, fd_ = -1;
  std::uint64_t tag_ = 0;
  std::uint32_t events_ = 0;
};

}  // namespace troupe
