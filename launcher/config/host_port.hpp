#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe {

/// "HOST:PORT", taken apart; an IPv6 address stands in brackets ("[fd00::7]:7000").
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// Errors: invalid_argument. Port 0 is taken.
  static Result<HostPort> parse(std::string_view text);
  std::string text() const;
};

}  // namespace troupe
