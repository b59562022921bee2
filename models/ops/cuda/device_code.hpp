#pragma once

#include <string_view>

namespace troupe {

/// Whether code that nvcc makes with `-gencode=<code>` runs on a GPU of compute capability
/// major.minor: "arch=compute_90a,code=sm_90a", or several codes in brackets, "code=[sm_80,
/// compute_80]". Machine code of sm_XY runs on X.Z with Z >= Y, with a letter behind it on X.Y
/// alone (with f on X.Z); compute_XY is compiled by the driver of any GPU from X.Y on.
bool code_runs_on(std::string_view code, int major, int minor);

/// Whether such code has kernels made of Hopper's own instructions (wgmma, bulk copies with
/// multicast): sm_90a or compute_90a is in it. Other GPUs' code has those kernels without a body.
bool has_hopper_kernels(std::string_view code);

}  // namespace troupe
