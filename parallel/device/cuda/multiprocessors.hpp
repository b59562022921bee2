#pragma once

#include <algorithm>

namespace troupe::cuda {

/// The number of multiprocessors of this thread's current device; 1 if there is none. The driver is
/// asked once.
int multiprocessors();

/// How many of a device's multiprocessors a kernel takes whose blocks must all run at once, because
/// they wait for blocks of other GPUs: all but four, which other kernels may have, but at least
/// one.
constexpr int multiprocessors_to_take(int all) { return std::max(all - 4, 1); }
inline int multiprocessors_to_take() { return multiprocessors_to_take(multiprocessors()); }

}  // namespace troupe::cuda
