#pragma once

namespace troupe {

/// True if kernels with Hopper's own instructions run on this thread's current device: this build
/// has them, and the device's compute capability is 9.0. On every other device they have no body.
bool hopper_kernels_run();

}  // namespace troupe
