#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The numeric address of this machine from which packets to `host` (an address or a name) leave;
/// nothing is sent. Errors: not_found for a host without an address; io if there is no way to it.
Result<std::string> local_address_towards(const std::string& host);

/// The numeric address of a network interface of this machine ("lo", "eth0"): IPv4 if it has one,
/// else IPv6. A numeric address that one of them has ("10.0.0.7") stays as it is. Errors:
/// not_found, which lists the interfaces that have an address; io.
Result<std::string> interface_address(const std::string& interface);

/// True for a numeric address that reaches this machine alone: 127.0.0.0/8, ::1.
bool is_loopback(const std::string& address);

/// The numeric addresses of a host, in the order in which they are to be tried. Errors: not_found.
Result<std::vector<std::string>> addresses_of(const std::string& host);

/// The name of the network interface that has this numeric address ("eth0"). Errors: not_found; io.
Result<std::string> interface_of(const std::string& address);

/// The numeric address of this machine that `host` means: an interface or address of its own, or a
/// name that is looked up. Errors: not_found.
Result<std::string> own_address(const std::string& host);

}  // namespace troupe
