#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace troupe {

/// Enqueues a copy between device memory and the host's; `kind` gives the direction. A small one
/// from or to page-locked memory is done by a kernel, which accesses it over the bus: copy engines
/// take some five microseconds before and after each copy between kernels. Page-locked memory must
/// stay unchanged until the copy is done; no kernel but this one writes to it.
cudaError_t copy_small(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream);

}  // namespace troupe
