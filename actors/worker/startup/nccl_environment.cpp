#include "actors/worker/startup/nccl_environment.hpp"

#include <cstdlib>

#include "runtime/link/local_address.hpp"

namespace troupe {

void set_nccl_environment(const NodePlace& place) {
  if (place.address.empty()) return;
  constexpr int keep = 0;  // a value that is there
  if (const auto interface = interface_of(place.address); interface.ok()) {
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + *interface).c_str(), keep);  // =: no other that begins so
  }
  ::setenv("NCCL_HOSTID", place.name.c_str(), keep);
}

}  // namespace troupe
