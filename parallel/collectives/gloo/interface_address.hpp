#pragma once

#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the numeric address of a network interface of this node ("lo", "eth0"): IPv4 if it has
/// one, else IPv6. Errors: not_found, which lists the interfaces that have an address; io.
Result<std::string> interface_address(const std::string& interface);

}  // namespace troupe
