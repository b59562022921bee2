#include "runtime/link/unacknowledged_time.hpp"

#include <algorithm>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace troupe {

using std::chrono::milliseconds;

std::optional<milliseconds> UnacknowledgedTime::look(int socket, Clock::time_point now) {
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool is_known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  // A closed window is probed; the probes of a host that is there are answered.
  if (!is_known || (info.tcpi_unacked == 0 && info.tcpi_probes == 0)) {
    since_.reset();
    return std::nullopt;
  }
  const auto acknowledged_at = now - milliseconds(info.tcpi_last_ack_recv);
  since_ = std::max(since_.value_or(now), acknowledged_at);
  return std::chrono::duration_cast<milliseconds>(now - *since_);
}

}  // namespace troupe
