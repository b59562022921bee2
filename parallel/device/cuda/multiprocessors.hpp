#pragma once

namespace troupe::cuda {

/// The number of multiprocessors of this thread's current device; 1 if there is none. The driver is
/// asked once.
int multiprocessors();

}  // namespace troupe::cuda
