#include "runtime/link/port_range.hpp"

namespace troupe {

Result<void> take_first(PortRange ports, std::string_view what,
                        const std::function<Result<bool>(std::uint16_t port)>& bind) {
  for (int port = ports.first; port <= ports.last; ++port) {
    TROUPE_TRY(const bool is_bound, bind(static_cast<std::uint16_t>(port)));
    if (is_bound) return {};
  }
  if (ports.is_any()) return fail(ErrorCode::resource_exhausted, "{}: no port is free", what);
  return fail(
      ErrorCode::resource_exhausted, "{}: {} is taken (allow more, or end what has them)", what,
      ports.first == ports.last ? fmt::format("port {}", ports.first)
                                : fmt::format("every port of {}-{}", ports.first, ports.last));
}

}  // namespace troupe
