#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// 999 -> "999 B", 4'400'000 -> "4.20 MiB": three digits, or four below 1024; at most 8 columns.
std::string format_bytes(std::uint64_t bytes);

}  // namespace troupe
