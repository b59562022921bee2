// Many rows of 8-bit codes times matrices of such codes, a scale a row: microseconds by each tiling
// of scaled_gemm, the one that best_tiling takes, and cuBLASLt. Shapes of Qwen3-8B and of half of
// Llama-70B. Arguments: numbers of rows (128, 256, 384, 512, 768 and 1,024 by default).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/fp8_rows.hpp"

namespace troupe {
namespace {

constexpr std::int64_t most_rows = 1024, cache_bytes = 192'000'000;  // more than any GPU's cache
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void* device_memory(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc");
  return memory;
}

/// Codes of normal numbers: products of equal ones take less power, and so less time.
void* random_codes(std::int64_t bytes) {
  static const std::vector<std::uint8_t> some = [] {
    std::vector<std::uint8_t> codes(std::size_t{1} << 24);
    std::mt19937 engine{7};
    std::normal_distribution<float> normal(0.0F, 100.0F);
    for (std::uint8_t& code : codes) code = float_to_e4m3(normal(engine));
    return codes;
  }();
  auto* const memory = static_cast<std::byte*>(device_memory(bytes));
  for (std::int64_t done = 0; done < bytes; done += std::ssize(some)) {
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(bytes - done, std::ssize(some)));
    check(cudaMemcpy(memory + done, some.data(), count, cudaMemcpyHostToDevice), "a copy");
  }
  return memory;
}

void* equal_scales(std::int64_t count) {
  const std::vector<float> scales(static_cast<std::size_t>(count), 1e-3F);
  void* const memory = device_memory(4 * count);
  check(cudaMemcpy(memory, scales.data(), 4 * scales.size(), cudaMemcpyHostToDevice), "a copy");
  return memory;
}

struct Matrix {
  const char* name;
  std::int64_t n, k;
};

class Bench {
 public:
  Bench() {
    check(cudaStreamCreate(&stream_), "a stream");
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
    if (cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) {
      std::fprintf(stderr, "cuBLASLt cannot be started\n");
      std::exit(1);
    }
  }

  void measure(const Matrix& matrix, const std::vector<std::int64_t>& all_rows) const {
    const std::int64_t bytes = matrix.n * matrix.k;
    const auto copies = cache_bytes / bytes + 2;
    auto* const weights = static_cast<std::byte*>(random_codes(copies * bytes));
    void* const x = random_codes(most_rows * matrix.k);
    void* const out = device_memory(2 * most_rows * matrix.n);
    const auto* const of_weight = static_cast<const float*>(equal_scales(matrix.n));
    const auto* const of_x = static_cast<const float*>(equal_scales(most_rows));
    const auto weight = [&](int turn) { return weights + turn % copies * bytes; };
    for (const std::int64_t rows : all_rows) {
      std::printf("%-22s %5lld x %5lld, %4lld rows:", matrix.name, static_cast<long long>(matrix.n),
                  static_cast<long long>(matrix.k), static_cast<long long>(rows));
      const GemmKind kind{matrix.n, matrix.k, rows, DType::u8, DType::bf16};
      const auto advised = advised_algorithms(handle_, kind, workspace_bytes, 1);
      double theirs = 0;
      if (!advised.empty()) {
        theirs = time([&](int turn) {
          const GemmMemory memory{.weight = weight(turn),
                                  .x = x,
                                  .out = out,
                                  .workspace = workspace_,
                                  .workspace_bytes = workspace_bytes,
                                  .weight_scales = of_weight,
                                  .x_scales = of_x};
          return run_cublaslt_gemm(handle_, kind, advised.front(), memory, stream_) ==
                         CUBLAS_STATUS_SUCCESS
                     ? cudaSuccess
                     : cudaErrorUnknown;
        });
        std::printf(" cuBLASLt %.1f us;", theirs);
      }
      ScaledGemm gemm{.weight = nullptr,
                      .x = x,
                      .out = out,
                      .rows = rows,
                      .n = matrix.n,
                      .k = matrix.k,
                      .weight_scales = of_weight,
                      .x_scales = of_x};
      const auto chosen = best_tiling(gemm);
      double ours = 0;
      for (const int columns : {64, 96, 128, 192}) {
        for (const PairShares shares : {PairShares::weight, PairShares::x, PairShares::tile}) {
          const ScaledGemmTiling tiling{columns, shares};
          gemm.weight = weight(0);
          if (launch_scaled_gemm(gemm, tiling, stream_) != cudaSuccess) continue;
          const double us = time([&](int turn) {
            gemm.weight = weight(turn);
            return launch_scaled_gemm(gemm, tiling, stream_);
          });
          constexpr std::array<const char*, 3> names{"", "x", "k"};
          std::printf(" %d%s %.1f", columns, names.at(static_cast<std::size_t>(shares)), us);
          if (chosen == tiling) ours = us;
        }
      }
      const double taken = chosen ? ours : theirs;
      const auto flop = 2.0 * static_cast<double>(rows * matrix.n * matrix.k);
      std::printf("; taken: %s, %.0f TFLOP/s, %.2f of cuBLASLt's time\n",
                  chosen ? "ours" : "cuBLASLt", flop / taken * 1e-6, taken / theirs);
    }
    for (const void* memory : {static_cast<const void*>(weights), static_cast<const void*>(x),
                               static_cast<const void*>(out), static_cast<const void*>(of_weight),
                               static_cast<const void*>(of_x)}) {
      cudaFree(const_cast<void*>(memory));
    }
  }

 private:
  /// Microseconds of one of many, the least of five runs as a graph after one that is not counted.
  double time(const std::function<cudaError_t(int turn)>& enqueue) const {
    constexpr int count = 12, runs = 6;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(enqueue(0), "a kernel");
    check(cudaStreamSynchronize(stream_), "a kernel");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int turn = 0; turn < count; ++turn) check(enqueue(turn), "a kernel");
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
    float least = 0.0F;
    for (int run = 0; run < runs; ++run) {
      float ms = 0.0F;
      check(cudaEventRecord(begin_, stream_), "an event");
      check(cudaGraphLaunch(executable, stream_), "a graph");
      check(cudaEventRecord(end_, stream_), "an event");
      check(cudaEventSynchronize(end_), "kernels");
      check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
      if (run == 1 || (run > 1 && ms < least)) least = ms;
    }
    check(cudaGraphExecDestroy(executable), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
    return double{least} * 1e3 / count;
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = device_memory(workspace_bytes);
};

void run(const std::vector<std::int64_t>& rows) {
  constexpr Matrix matrices[] = {{"8B qkv", 6144, 4096},
                                 {"8B attention out", 4096, 4096},
                                 {"8B gate and up", 24576, 4096},
                                 {"8B down", 4096, 12288},
                                 {"70B/2 qkv", 5120, 8192},
                                 {"70B/2 attention out", 8192, 4096},
                                 {"70B/2 gate and up", 28672, 8192},
                                 {"70B/2 down", 8192, 14336}};
  const Bench bench;
  for (const Matrix& matrix : matrices) bench.measure(matrix, rows);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    rows.push_back(std::clamp<std::int64_t>(std::atoll(argv[i]), 1, troupe::most_rows));
  }
  if (rows.empty()) rows = {128, 256, 384, 512, 768, 1024};
  troupe::run(rows);
}
