#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/dense_gemm.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// Bytes read before a run, so that no run finds operands in the device's cache from the last one.
inline constexpr std::size_t flush_bytes = std::size_t{96} << 20;

/// Stream-ordered device memory, which can be allocated while another stream is captured.
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

/// Measures the time between two points in a stream.
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

/// Waits for work on `stream`, which would disturb the measurement; not if the stream is being
/// captured, because then it cannot be waited for.
inline void let_work_end(cudaStream_t stream) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capturing);
  if (capturing == cudaStreamCaptureStatusNone) cudaStreamSynchronize(stream);
}

/// True if an algorithm read from a file supports GEMMs of this kind.
inline bool is_usable(cublasLtHandle_t handle, const GemmKind& kind,
                      const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) {
  GemmLayout layout(kind);
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, &layout.operation, &layout.weight, &layout.x, &layout.out,
                              &layout.out, &algorithm, &checked);
  return status == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= workspace_bytes;
}

inline std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace troupe
