#include "runtime/actor/actor_down.hpp"

namespace troupe {

std::string_view to_string(DownCause cause) {
  switch (cause) {
    case DownCause::stopped:
      return "stopped";
    case DownCause::exited:
      return "exited";
    case DownCause::exit_code:
      return "exit_code";
    case DownCause::signal:
      return "signal";
    case DownCause::unresponsive:
      return "unresponsive";
    case DownCause::node_lost:
      return "node_lost";
    case DownCause::not_restarted:
      return "not_restarted";
    case DownCause::forgotten:
      return "forgotten";
  }
  return "unknown";
}

}  // namespace troupe
