#pragma once

#include <string_view>

#include <cuda_runtime.h>

#include "runtime/base/result.hpp"

namespace troupe {

/// An error that says which `operation`, "the upload of a plan", failed: resource_exhausted where
/// memory was not there, else internal.
Result<void> cuda_done(cudaError_t error, std::string_view operation);

}  // namespace troupe
