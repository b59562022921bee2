#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace troupe {

/// Enqueues filling `memory` with random bf16 numbers in [-1, 1). GEMMs of equal numbers draw less
/// power, and so run faster. `bytes` is a multiple of 2.
void fill_with_noise(void* memory, std::size_t bytes, cudaStream_t stream);

/// Enqueues reading all of `memory`, which evicts other memory from the device's cache. `bytes` is
/// a multiple of 16.
void read_through(const void* memory, std::size_t bytes, cudaStream_t stream);

}  // namespace troupe
