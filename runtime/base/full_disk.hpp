#pragma once

#include <cerrno>

namespace troupe {

/// Whether a write failed for want of room (disk or quota), so that a later one may succeed.
inline bool is_full_disk(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT;
}

}  // namespace troupe
