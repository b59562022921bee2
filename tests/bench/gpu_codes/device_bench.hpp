// What the benches of kernels for codes share: memory on the device, and times of kernels.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include <cuda_runtime.h>

namespace troupe {

/// Ends the program with a message if there is an error.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Memory on the device, each byte `value`.
inline std::byte* device_memory(std::int64_t bytes, int value = 0x2B) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
  check(cudaMemset(memory, value, static_cast<std::size_t>(bytes)), "cudaMemset");
  return static_cast<std::byte*>(memory);
}

/// Memory on the device of normal numbers in bf16, none of whose bytes is a NaN of E4M3: zeros take
/// less power, with which large products are faster.
inline std::byte* random_device_numbers(std::int64_t bytes) {
  std::vector<std::uint16_t> numbers(std::size_t{1} << 22);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (std::uint16_t& number : numbers) {
    number =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(engine)) >> 16 & 0xFFBFU);
  }
  std::byte* const memory = device_memory(bytes);
  const std::int64_t all = 2 * std::ssize(numbers);
  for (std::int64_t at = 0; at < bytes; at += all) {
    const auto some = static_cast<std::size_t>(std::min(bytes - at, all));
    check(cudaMemcpy(memory + at, numbers.data(), some, cudaMemcpyHostToDevice), "a copy");
  }
  return memory;
}

/// A stream, and the times of what it runs as a graph.
class GraphTimer {
 public:
  GraphTimer() {
    check(cudaStreamCreate(&stream), "a stream");
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }

  /// Microseconds of one of `count`, the third of six runs by time, after one that is not counted.
  double time(int count, const std::function<cudaError_t(int turn)>& enqueue) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(enqueue(0), "a kernel");
    check(cudaStreamSynchronize(stream), "a kernel");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int turn = 0; turn < count; ++turn) check(enqueue(turn), "a kernel");
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
    std::array<float, 6> times{};
    for (float& ms : times) {
      check(cudaEventRecord(begin_, stream), "an event");
      check(cudaGraphLaunch(executable, stream), "a graph");
      check(cudaEventRecord(end_, stream), "an event");
      check(cudaEventSynchronize(end_), "kernels");
      check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
    }
    check(cudaGraphExecDestroy(executable), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
    std::ranges::nth_element(times, times.begin() + 2);
    return double{times[2]} * 1e3 / count;
  }

  cudaStream_t stream = nullptr;

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace troupe
