#pragma once

#include <cstdint>

namespace troupe {

/// The number of descriptors that this process may have.
std::uint64_t open_file_limit();

/// Raises that number as far as a process may by itself: to the hard limit (`ulimit -Hn`), or to
/// 1,048,576 if that is smaller. Shells give 1,024 by default, which a driver of a few hundred
/// nodes exceeds. Processes that are started later inherit it.
void raise_open_file_limit();

}  // namespace troupe
