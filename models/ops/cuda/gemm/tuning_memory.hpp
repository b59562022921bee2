#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace troupe {

/// Enqueues: `memory` holds random bf16 numbers in [-1, 1). Products of equal numbers draw less
/// power than others, and run faster. `bytes` is a multiple of 2.
void fill_with_noise(void* memory, std::size_t bytes, cudaStream_t stream);

/// Enqueues that all of `memory` is read, which drives other memory out of the device's cache.
/// `bytes` is a multiple of 16.
void read_through(const void* memory, std::size_t bytes, cudaStream_t stream);

}  // namespace troupe
