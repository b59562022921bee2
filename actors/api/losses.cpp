#include "actors/api/losses.hpp"

#include <algorithm>

#include <signal.h>

namespace troupe {
namespace {

/// Smaller is nearer to the cause: what was done to a process comes before its reactions to others.
int distance_from_cause(DownCause cause) {
  switch (cause) {
    case DownCause::node_lost:
      return 0;
    case DownCause::signal:
      return 1;
    case DownCause::exit_code:
      return 2;
    case DownCause::unresponsive:
      return 3;
    case DownCause::exited:
      return 4;
    case DownCause::stopped:
      return 5;
    case DownCause::not_restarted:
    case DownCause::forgotten:
      break;
  }
  return 6;
}

bool is_own_signal(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

}  // namespace

const ActorDown& cause_of(std::span<const ActorDown> downs) {
  return *std::ranges::min_element(
      downs, {}, [](const ActorDown& down) { return distance_from_cause(down.cause); });
}

bool is_consequence(const ActorDown& down, const ActorDown& cause) {
  if (down.cause != cause.cause) {
    return distance_from_cause(down.cause) > distance_from_cause(cause.cause);
  }
  return down.cause == DownCause::node_lost && down.node == cause.node && down.id != cause.id;
}

bool began_inside(std::span<const ActorDown> downs) {
  const ActorDown& cause = cause_of(downs);
  return cause.cause == DownCause::exit_code || cause.cause == DownCause::exited ||
         (cause.cause == DownCause::signal && is_own_signal(cause.code));
}

}  // namespace troupe
