#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// The TCP ports that listeners may take, both ends included. 0: any that the kernel chooses.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  bool is_any() const { return first == 0; }
  template <class Archive>
  void fields(Archive& archive) {
    archive(first, last);
  }
};

/// Calls `bind` with the ports of the range one after the other (0: any that is free), until it
/// returns true; false says that the port is taken. Errors: those of `bind`; resource_exhausted,
/// which begins with `what`, if all are taken.
Result<void> take_first(PortRange ports, std::string_view what,
                        const std::function<Result<bool>(std::uint16_t port)>& bind);

}  // namespace troupe
