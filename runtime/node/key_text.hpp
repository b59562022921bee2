#pragma once

#include <string_view>

#include "runtime/security/job_secret.hpp"

namespace troupe {

/// Reads a key's hexadecimal text, as to_hex() writes it; false if it is none.
bool read_key(std::string_view text, Key& key);

}  // namespace troupe
