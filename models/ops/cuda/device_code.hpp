#pragma once

#include <string_view>

namespace troupe {

/// True if code that nvcc makes with `-gencode=<code>` runs on a GPU of compute capability
/// major.minor: "arch=compute_90a,code=sm_90a", or several codes in brackets, "code=[sm_80,
/// compute_80]". Machine code of sm_XY runs on X.Z with Z >= Y; with a letter suffix on X.Y only
/// (with f on X.Z); the driver of any GPU from X.Y on compiles compute_XY.
bool code_runs_on(std::string_view code, int major, int minor);

/// True if such code has kernels with Hopper's own instructions (wgmma, bulk copies with
/// multicast): it contains sm_90a or compute_90a. In other GPUs' code those kernels have no body.
bool has_hopper_kernels(std::string_view code);

}  // namespace troupe
