#include "launcher/job/stop_signals.hpp"

#include <cerrno>
#include <csignal>

#include <sys/signalfd.h>
#include <unistd.h>

namespace troupe {
namespace {

bool is_ignored(int number) {
  struct sigaction action{};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<StopSignals> StopSignals::block() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGTSTP}) sigaddset(&signals, number);
  // nohup ignores it; a blocked signal would be kept pending all the same.
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) return fail_errno(errno, "sigmask");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (fd.get() < 0) return fail_errno(errno, "signalfd");
  return StopSignals(std::move(fd));
}

int StopSignals::count() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTSTP) {
      pause();
    } else if (info.ssi_signo != SIGUSR1) {
      ++count_;
    } else if (count_ == 0) {
      count_ = 1;
    }
  }
  return count_;
}

/// Applies the signal's default action: stops the process, unless there is no shell that could
/// continue it.
void StopSignals::pause() {
  if (before_pause_) before_pause_();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTSTP);
  ::raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // stops here, until SIGCONT
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (after_pause_) after_pause_();
}

}  // namespace troupe
