#pragma once

#include <string>

namespace troupe {

/// The name of this machine; empty if it has none.
std::string host_name();

}  // namespace troupe
