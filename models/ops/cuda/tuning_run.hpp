#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include <cuda_runtime.h>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Read before a run, so that no run finds operands in the device's cache that the last one left.
inline constexpr std::size_t flush_bytes = std::size_t{96} << 20;

/// Device memory in the order of a stream, which may be had while another stream is captured.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (cudaMallocAsync(&memory_, bytes, stream) == cudaSuccess) return;
    memory_ = nullptr;
    cudaGetLastError();  // the caller sees that there is none
  }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  ~StreamMemory() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
  }
  void* get() const { return memory_; }

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
};

/// Two moments in a stream.
class Stopwatch {
 public:
  Stopwatch() {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void start(cudaStream_t stream) { cudaEventRecord(begin_, stream); }
  float stop_ms(cudaStream_t stream) {
    float ms = std::numeric_limits<float>::infinity();
    cudaEventRecord(end_, stream);
    if (cudaEventSynchronize(end_) == cudaSuccess) cudaEventElapsedTime(&ms, begin_, end_);
    return ms;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

inline std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace troupe
