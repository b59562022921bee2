#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace troupe::bench {

/// Reading `bytes` of memory by pages of 4 KiB in random order, each page prefetched while the one
/// before is read, on `threads` threads: GB/s.
double page_ceiling(int threads, std::size_t bytes);

/// oneDNN's fp32 matmul of x [m, k] with a pre-packed weight [k, n], as a function that runs it
/// once; empty if oneDNN is not built in. Runs on OMP_NUM_THREADS threads.
std::function<void()> onednn_product(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace troupe::bench
