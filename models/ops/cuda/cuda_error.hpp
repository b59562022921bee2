#pragma once

#include <string_view>

#include <cuda_runtime.h>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns an error that names the failed `operation`, e.g. "the upload of a plan":
/// resource_exhausted if out of memory, else internal.
Result<void> cuda_done(cudaError_t error, std::string_view operation);

}  // namespace troupe
