#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace troupe {

/// For calls into a library that writes to sockets whose other end may be gone: blocks SIGPIPE in
/// this thread, and in threads it starts meanwhile, and discards one that was raised.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;
  ~SigpipeBlocked() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{0, 0};
    ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace troupe
