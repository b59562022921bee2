#pragma once

#include <string>

#include "runtime/base/result.hpp"

namespace troupe {

/// The numeric address of this machine from which packets to `host` (an address or a name) leave;
/// nothing is sent. Errors: not_found for a host without an address; io if there is no way to it.
Result<std::string> local_address_towards(const std::string& host);

}  // namespace troupe
