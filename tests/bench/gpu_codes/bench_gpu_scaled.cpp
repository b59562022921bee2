// Many rows of 8-bit codes times matrices of such codes, a scale a row: microseconds by each tiling
// of scaled_gemm, the one that best_tiling takes, cuBLASLt, and quantising the rows; TFLOP/s
// without and with the latter. Shapes of Qwen3-8B, of half of Llama-70B and a square. Arguments:
// numbers of rows (128, 256, 384, 512, 768 and 1,024 by default), and `int8` for signed bytes, too,
// which cuBLASLt does not multiply so, beside E4M3.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/gemm/scaled_gemm.hpp"
#include "models/ops/fp8_rows.hpp"
#include "parallel/device/dtype.hpp"
#include "tests/bench/gpu_codes/device_bench.hpp"

namespace troupe {
namespace {

constexpr std::int64_t few_rows = 1024, most_rows = 16384;  // of more, narrow tiles are left out
constexpr std::int64_t cache_bytes = 192'000'000;           // more than any GPU's cache
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

/// `count` normal numbers: products of equal ones take less power, and so less time.
template <class Number, class Convert>
std::byte* random_numbers(std::int64_t count, const Convert& convert) {
  static const std::vector<Number> some = [&] {
    std::vector<Number> numbers(std::size_t{1} << 24);
    std::mt19937 engine{7};
    std::normal_distribution<float> normal(0.0F, 100.0F);
    for (Number& number : numbers) number = convert(normal(engine));
    return numbers;
  }();
  std::byte* const memory = device_memory(count * std::int64_t{sizeof(Number)});
  for (std::int64_t done = 0; done < count; done += std::ssize(some)) {
    const std::int64_t more = std::min<std::int64_t>(count - done, std::ssize(some));
    check(cudaMemcpy(memory + done * std::int64_t{sizeof(Number)}, some.data(),
                     static_cast<std::size_t>(more) * sizeof(Number), cudaMemcpyHostToDevice),
          "a copy");
  }
  return memory;
}
std::byte* random_codes(std::int64_t count, CodeKind kind) {
  if (kind == CodeKind::e4m3) return random_numbers<std::uint8_t>(count, float_to_e4m3);
  return random_numbers<std::uint8_t>(count, [](float number) {
    return static_cast<std::uint8_t>(static_cast<int>(std::clamp(number / 3, -127.0F, 127.0F)));
  });
}

float* equal_scales(std::int64_t count) {
  const std::vector<float> scales(static_cast<std::size_t>(count), 1e-3F);
  std::byte* const memory = device_memory(4 * count);
  check(cudaMemcpy(memory, scales.data(), 4 * scales.size(), cudaMemcpyHostToDevice), "a copy");
  return reinterpret_cast<float*>(memory);
}

struct Matrix {
  const char* name;
  std::int64_t n, k;
};

class Bench {
 public:
  Bench() {
    if (cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) {
      std::fprintf(stderr, "cuBLASLt cannot be started\n");
      std::exit(1);
    }
  }

  void measure(const Matrix& matrix, const std::vector<std::int64_t>& all_rows,
               CodeKind kind_of_codes) const {
    const std::int64_t bytes = matrix.n * matrix.k;
    const bool is_int8 = kind_of_codes == CodeKind::int8;
    const auto copies = cache_bytes / bytes + 2;
    const std::int64_t most = std::ranges::max(all_rows);
    std::byte* const weights = random_codes(copies * bytes, kind_of_codes);
    void* const numbers = random_numbers<BFloat16>(most * matrix.k, to_bfloat16);
    std::byte* const x = random_codes(most * matrix.k, kind_of_codes);
    void* const out = device_memory(2 * most * matrix.n);
    float* const of_weight = equal_scales(matrix.n);
    float* const of_x = equal_scales(most);
    const auto weight = [&](int turn) { return weights + turn % copies * bytes; };
    for (const std::int64_t rows : all_rows) {
      std::printf("%s %-22s %5lld x %5lld, %4lld rows:", is_int8 ? "int8" : "fp8 ", matrix.name,
                  static_cast<long long>(matrix.n), static_cast<long long>(matrix.k),
                  static_cast<long long>(rows));
      const GemmKind kind{matrix.n, matrix.k, rows, DType::u8, DType::bf16};
      const auto advised = advised_algorithms(handle_, kind, workspace_bytes, 1);
      const auto time_theirs = [&] {
        if (is_int8 || advised.empty()) return 0.0;
        return timer_.time(turns, [&](int turn) {
          const GemmMemory memory{.weight = weight(turn),
                                  .x = x,
                                  .out = out,
                                  .workspace = workspace_,
                                  .workspace_bytes = workspace_bytes,
                                  .weight_scales = of_weight,
                                  .x_scales = of_x};
          return run_cublaslt_gemm(handle_, kind, advised.front(), memory, timer_.stream) ==
                         CUBLAS_STATUS_SUCCESS
                     ? cudaSuccess
                     : cudaErrorUnknown;
        });
      };
      const double before = time_theirs();
      ScaledGemm gemm{.weight = nullptr,
                      .x = x,
                      .out = out,
                      .rows = rows,
                      .n = matrix.n,
                      .k = matrix.k,
                      .weight_scales = of_weight,
                      .x_scales = of_x,
                      .kind = kind_of_codes};
      const auto chosen = best_tiling(gemm);
      double ours = 0;
      for (const int columns : {64, 96, 128, 192, 256}) {
        for (const PairShares shares : {PairShares::weight, PairShares::x, PairShares::tile}) {
          const ScaledGemmTiling tiling{columns, shares};
          if (rows > few_rows && columns < 192 && chosen != tiling) continue;
          gemm.weight = weight(0);
          if (launch_scaled_gemm(gemm, tiling, timer_.stream) != cudaSuccess) continue;
          const double us = timer_.time(turns, [&](int turn) {
            gemm.weight = weight(turn);
            return launch_scaled_gemm(gemm, tiling, timer_.stream);
          });
          constexpr std::array<const char*, 3> names{"", "x", "k"};
          std::printf(" %d%s %.1f", columns, names.at(static_cast<std::size_t>(shares)), us);
          if (chosen == tiling) ours = us;
        }
      }
      const double theirs = (before + time_theirs()) / 2;
      if (!is_int8) std::printf("; cuBLASLt %.1f us", theirs);
      const CodedRows codes{
          .codes = reinterpret_cast<std::uint8_t*>(x), .scales = of_x, .kind = kind_of_codes};
      const double quantising = timer_.time(turns, [&](int) {
        return launch_quantize_rows(numbers, rows, matrix.k, codes, timer_.stream);
      });
      const double taken = chosen ? ours : theirs;
      const auto flop = 2.0 * static_cast<double>(rows * matrix.n * matrix.k);
      std::printf("; taken: %s, %.1f us, %.0f TFLOP/s", chosen ? "ours" : "cuBLASLt", taken,
                  flop / taken * 1e-6);
      if (!is_int8) std::printf(", %.2f of cuBLASLt's time", taken / theirs);
      std::printf("; codes of x %.1f us, %.0f\n", quantising, flop / (taken + quantising) * 1e-6);
    }
    for (void* memory : {static_cast<void*>(weights), numbers, static_cast<void*>(x), out,
                         static_cast<void*>(of_weight), static_cast<void*>(of_x)})
      cudaFree(memory);
  }

 private:
  static constexpr int turns = 12;

  GraphTimer timer_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = device_memory(workspace_bytes);
};

void run(const std::vector<std::int64_t>& rows, bool with_int8) {
  constexpr Matrix matrices[] = {{"8B qkv", 6144, 4096},
                                 {"8B attention out", 4096, 4096},
                                 {"8B gate and up", 24576, 4096},
                                 {"8B down", 4096, 12288},
                                 {"70B/2 qkv", 5120, 8192},
                                 {"70B/2 attention out", 8192, 4096},
                                 {"70B/2 gate and up", 28672, 8192},
                                 {"70B/2 down", 8192, 14336},
                                 {"square", 8192, 8192}};
  const Bench bench;
  for (const Matrix& matrix : matrices) {
    bench.measure(matrix, rows, CodeKind::e4m3);
    if (with_int8) bench.measure(matrix, rows, CodeKind::int8);
  }
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::int64_t> rows;
  bool with_int8 = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "int8") {
      with_int8 = true;
      continue;
    }
    rows.push_back(std::clamp<std::int64_t>(std::atoll(argv[i]), 1, troupe::most_rows));
  }
  if (rows.empty()) rows = {128, 256, 384, 512, 768, 1024};
  troupe::run(rows, with_int8);
}
