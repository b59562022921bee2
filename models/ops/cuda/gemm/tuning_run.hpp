#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/cuda/gemm/tuning_memory.hpp"

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

/// The stream on which an autotuner measures; null if there is none.
class TuningStream {
 public:
  TuningStream() {
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) {
      stream_ = nullptr;
    }
  }
  TuningStream(const TuningStream&) = delete;
  TuningStream& operator=(const TuningStream&) = delete;
  ~TuningStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
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

/// The least time in milliseconds of a few calls of run(), which enqueues a GEMM on `stream`; the
/// first call only loads the kernel. Infinity if one returns false. `flush` has flush_bytes.
template <class Run>
float fastest_ms(const Run& run, const StreamMemory& flush, cudaStream_t stream) {
  constexpr int runs = 5;
  constexpr float enough_ms = 4.0F;  // total of measured runs
  float ms = std::numeric_limits<float>::infinity(), spent_ms = 0.0F;
  Stopwatch watch;
  for (int i = 0; i <= runs && spent_ms < enough_ms; ++i) {
    read_through(flush.get(), flush_bytes, stream);
    watch.start(stream);
    const bool ran = run();
    const float measured = watch.stop_ms(stream);
    if (!ran) return std::numeric_limits<float>::infinity();
    if (i == 0) continue;
    ms = std::min(ms, measured);
    spent_ms += measured;
  }
  return ms;
}

}  // namespace troupe
