// The kernels that multiply codes, each beside bf16's of the same shape: microseconds, and how much
// of the speed of bf16's kernel for one row and a large matrix the codes' bytes come at. Shapes of
// Qwen3-8B. Arguments: kinds (int4, int8, fp8, mxfp4; int4 and int8 by default).
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/cuda/gemm/coded_decode_gemm.hpp"
#include "models/ops/cuda/gemm/coded_gemm.hpp"
#include "models/ops/cuda/gemm/decode_codes.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/cuda/gemm/skinny_gemm.hpp"
#include "tests/bench/gpu_codes/device_bench.hpp"

namespace troupe {
namespace {

constexpr std::int64_t cache_bytes = 192'000'000;  // more than any GPU's cache
constexpr std::int64_t most_rows = 1024;

struct Bench : GraphTimer {
  double read_speed = 0;  ///< bytes a second

  /// Microseconds of one of many.
  double time(const std::function<cudaError_t(int turn)>& enqueue) const {
    return GraphTimer::time(60, enqueue);
  }
};

struct Matrix {
  const char* name;
  std::int64_t n, k;
  bool gated;
};

void measure(const Bench& bench, const Matrix& matrix, CodeKind kind, std::int32_t group) {
  CodedPanels layout{.kind = kind, .rows = matrix.n, .columns = matrix.k};
  layout.group_columns = group;
  layout.scale_dtype = group > 0 ? DType::bf16 : DType::f32;
  const std::int64_t bytes = layout.code_bytes();
  const auto copies = static_cast<int>(cache_bytes / bytes + 1);
  std::byte* const panels = device_memory(copies * bytes);
  void* const row_scales = device_memory(4 * matrix.n);
  void* const x = device_memory(2 * most_rows * matrix.k);
  void* const out = device_memory(4 * most_rows * matrix.n);
  const std::int64_t plain_bytes = 2 * matrix.n * matrix.k;
  const auto plain_copies = static_cast<int>(cache_bytes / plain_bytes + 1);
  std::byte* const plain = device_memory(plain_copies * plain_bytes);
  const auto plain_at = [&](int turn) { return plain + turn % plain_copies * plain_bytes; };
  const auto weight = [&](int turn) {
    return CodedWeight{.layout = layout,
                       .panels = panels + turn % copies * bytes,
                       .row_scales = static_cast<const float*>(row_scales)};
  };
  const auto print = [&](const char* kernel, std::int64_t rows, double us, double plain_us) {
    std::printf("%-5s %-8s %5lld rows: %-7s %8.2f us", matrix.name,
                std::string(name_of(kind)).c_str(), static_cast<long long>(rows), kernel, us);
    std::printf(", %5.1f %% of the best",
                100 * static_cast<double>(bytes) / us * 1e6 / bench.read_speed);
    if (plain_us > 0) std::printf("; bf16 %8.2f us (%.2f times)", plain_us, plain_us / us);
    std::printf("\n");
  };
  for (const std::int64_t rows : {1, 4, 8, 16, 32, 64, 128, 256, 512}) {
    CodedGemm gemm{.x = x, .out = out, .rows = rows, .gated = matrix.gated};
    double plain_us = 0;
    if (rows <= 8) {
      SkinnyGemm few{.weight = plain, .x = x, .out = out};
      few.rows = rows, few.n = matrix.n, few.k = matrix.k, few.gated = matrix.gated;
      plain_us = bench.time([&](int turn) {
        few.weight = plain_at(turn);
        return launch_skinny_gemm(few, bench.stream);
      });
    } else if (rows <= 128) {
      DecodeGemm few{.weight = plain, .x = x, .out = out};
      few.rows = rows, few.n = matrix.n, few.k = matrix.k, few.gated = matrix.gated;
      const DecodeGemmTiling tiling = best_tiling(few);
      plain_us = bench.time([&](int turn) {
        few.weight = plain_at(turn);
        return launch_decode_gemm(few, tiling, bench.stream);
      });
    }
    gemm.weight = weight(0);
    if (coded_gemm_fits(gemm)) {
      const double us = bench.time([&](int turn) {
        gemm.weight = weight(turn);
        return launch_coded_gemm(gemm, bench.stream);
      });
      print("few", rows, us, plain_us);
    }
    if (rows >= 4 && coded_decode_gemm_fits(gemm)) {
      const double us = bench.time([&](int turn) {
        gemm.weight = weight(turn);
        return launch_coded_decode_gemm(gemm, bench.stream);
      });
      print("decode", rows, us, plain_us);
    }
  }
  const std::int64_t part = std::min<std::int64_t>(matrix.n, 4096);
  const double us = bench.time(
      [&](int turn) { return launch_decode_rows(weight(turn), 0, part, plain, bench.stream); });
  std::printf("%-5s %-8s %lld of %lld rows to bf16: %.2f us\n", matrix.name,
              std::string(name_of(kind)).c_str(), static_cast<long long>(part),
              static_cast<long long>(matrix.n), us);
  for (void* memory : {static_cast<void*>(panels), row_scales, x, out, static_cast<void*>(plain)})
    cudaFree(memory);
}

void run(const std::vector<std::string_view>& kinds) {
  Bench bench;
  {
    constexpr std::int64_t n = 1 << 17, k = 4096;
    void* const weight = device_memory(2 * n * k);
    void* const x = device_memory(2 * k);
    void* const out = device_memory(2 * n);
    const double us = bench.time([&](int) {
      return launch_skinny_gemm({.weight = weight, .x = x, .out = out, .rows = 1, .n = n, .k = k},
                                bench.stream);
    });
    bench.read_speed = 2.0 * n * k / us * 1e6;
    std::printf("best: %.0f GB/s\n", bench.read_speed / 1e9);
    cudaFree(weight), cudaFree(x), cudaFree(out);
  }
  constexpr Matrix matrices[] = {{"qkv", 6144, 4096, false},
                                 {"out", 4096, 4096, false},
                                 {"gate", 24576, 4096, true},
                                 {"down", 4096, 12288, false}};
  for (const CodeKind kind : {CodeKind::int4, CodeKind::int8, CodeKind::e4m3, CodeKind::e2m1}) {
    if (std::ranges::find(kinds, name_of(kind)) == kinds.end()) continue;
    const std::int32_t group = kind == CodeKind::int4 ? 128 : kind == CodeKind::e2m1 ? 32 : 0;
    for (const Matrix& matrix : matrices) measure(bench, matrix, kind, group);
  }
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::string_view> kinds(argv + 1, argv + argc);
  if (kinds.empty()) kinds = {"int4", "int8"};
  troupe::run(kinds);
}
