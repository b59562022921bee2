// The kernels of experts in 4-bit and FP8 codes beside bf16's of the same shapes: microseconds,
// GB/s of the codes that are met, and TFLOP/s. Shapes of GPT-OSS-20B and Qwen3-30B-A3B; tokens
// choose different experts, all equally likely. The codes of FP8's rows are there already.
// Arguments: kinds (mxfp4, int4, fp8; mxfp4 by default), then numbers of tokens.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/moe/coded_grouped_gemm.hpp"
#include "models/ops/cuda/moe/grouped_gemm.hpp"
#include "tests/bench/gpu_codes/device_bench.hpp"

namespace troupe {
namespace {

struct Matrix {
  const char* name;
  std::int64_t n, k, experts, top_k;
  bool gated;
};

/// The choices of tokens, sorted by expert.
struct Choices {
  std::int32_t *offsets = nullptr, *source = nullptr;
  std::int64_t met = 0, most = 0;
};

Choices choose(const Matrix& matrix, std::int64_t tokens) {
  std::vector<std::vector<std::int32_t>> of(static_cast<std::size_t>(matrix.experts));
  std::vector<std::size_t> all(of.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::minstd_rand engine(1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < matrix.top_k; ++c) {
      const auto at = static_cast<std::size_t>(c);
      std::swap(all[at], all[at + engine() % (all.size() - at)]);
      of[all[at]].push_back(static_cast<std::int32_t>(t * matrix.top_k + c));
    }
  }
  std::vector<std::int32_t> offsets{0}, source;
  Choices choices;
  for (const auto& rows : of) {
    source.insert(source.end(), rows.begin(), rows.end());
    offsets.push_back(static_cast<std::int32_t>(source.size()));
    choices.met += rows.empty() ? 0 : 1;
    choices.most = std::max(choices.most, std::ssize(rows));
  }
  const auto put = [](const std::vector<std::int32_t>& numbers) {
    auto* const to = device_memory(4 * std::ssize(numbers));
    check(cudaMemcpy(to, numbers.data(), 4 * numbers.size(), cudaMemcpyHostToDevice), "a copy");
    return reinterpret_cast<std::int32_t*>(to);
  };
  choices.offsets = put(offsets);
  choices.source = put(source);
  return choices;
}

class Bench {
 public:
  Bench() {
    check(cudaStreamCreate(&stream), "a stream");
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }

  /// Microseconds of one of `count`, the median of five.
  double time(int count, const std::function<cudaError_t()>& enqueue) const {
    for (int i = 0; i < 2; ++i) check(enqueue(), "a kernel");
    check(cudaStreamSynchronize(stream), "a kernel");
    std::array<float, 5> times{};
    for (float& ms : times) {
      check(cudaEventRecord(begin_, stream), "an event");
      for (int i = 0; i < count; ++i) check(enqueue(), "a kernel");
      check(cudaEventRecord(end_, stream), "an event");
      check(cudaEventSynchronize(end_), "kernels");
      check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
    }
    std::ranges::nth_element(times, times.begin() + 2);
    return double{times[2]} * 1e3 / count;
  }

  cudaStream_t stream = nullptr;

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void measure(const Bench& bench, const Matrix& matrix, CodeKind kind,
             const std::vector<std::int64_t>& tokens_list) {
  const bool is_fp8 = kind == CodeKind::e4m3;
  const CodedPanels layout{.kind = kind,
                           .rows = matrix.n,
                           .columns = matrix.k,
                           .group_columns = kind == CodeKind::e2m1 ? 32 : 128,
                           .scale_dtype = DType::bf16};
  const std::int64_t expert_bytes = is_fp8 ? matrix.n * (matrix.k + 4) : layout.code_bytes();
  const std::int64_t most = std::ranges::max(tokens_list) * matrix.top_k;
  std::byte* const panels = random_device_numbers(matrix.experts * expert_bytes);
  std::byte* const plain = random_device_numbers(2 * matrix.experts * matrix.n * matrix.k);
  std::byte* const x = random_device_numbers(2 * most * matrix.k);
  std::byte* const codes_of_x = device_memory(most * matrix.k);
  std::byte* const out = device_memory(2 * most * matrix.n);
  for (const std::int64_t tokens : tokens_list) {
    const Choices choices = choose(matrix, tokens);
    const std::int64_t rows = tokens * matrix.top_k;
    CodedGroupedGemm coded{.layout = layout, .panels = panels, .x = x, .out = out};
    coded.offsets = choices.offsets, coded.source = choices.source;
    coded.assignments = rows, coded.experts = matrix.experts, coded.top_k = matrix.top_k;
    coded.gather = coded.gated = matrix.gated;
    coded.scatter = !matrix.gated;
    GroupedGemm bf16{.weights = plain, .x = x, .out = out};
    bf16.offsets = choices.offsets, bf16.source = choices.source;
    bf16.assignments = rows, bf16.experts = matrix.experts, bf16.top_k = matrix.top_k;
    bf16.n = matrix.n, bf16.k = matrix.k;
    bf16.gather = bf16.gated = matrix.gated;
    bf16.scatter = !matrix.gated;
    const int count = tokens > 2000 ? 4 : 20;
    GroupedGemm fp8 = bf16;
    fp8.weights = panels, fp8.x = codes_of_x;
    fp8.weight_scales =
        reinterpret_cast<const float*>(panels + matrix.experts * matrix.n * matrix.k);
    fp8.x_scales = reinterpret_cast<const float*>(plain);
    const double us = bench.time(count, [&] {
      return is_fp8 ? launch_grouped_gemm(fp8, bench.stream)
                    : launch_coded_grouped_gemm(coded, bench.stream);
    });
    const CodedRows codes{reinterpret_cast<std::uint8_t*>(codes_of_x),
                          reinterpret_cast<float*>(plain)};
    const double us_with_codes = !is_fp8 || matrix.gated ? us : bench.time(count, [&] {
      const std::int32_t* const all = choices.offsets + matrix.experts;
      check(launch_quantize_counted_rows(x, all, rows, matrix.k, codes, bench.stream), "codes");
      return launch_grouped_gemm(fp8, bench.stream);
    });
    const double bf16_us =
        bench.time(count, [&] { return launch_grouped_gemm(bf16, bench.stream); });
    const double bytes = static_cast<double>(choices.met * expert_bytes);
    const double operations = 2.0 * static_cast<double>(rows * matrix.n * matrix.k);
    std::printf(
        "%-5s %-14s %5lld tokens: %8.1f us, %6.0f GB/s, %5.0f TFLOP/s; bf16 %8.1f us (%.2f)",
        std::string(name_of(kind)).c_str(), matrix.name, static_cast<long long>(tokens), us,
        bytes / us / 1e3, operations / us / 1e6, bf16_us, bf16_us / us);
    if (us_with_codes != us) std::printf("; with codes of x %.1f us", us_with_codes);
    std::printf("\n");
    cudaFree(choices.offsets), cudaFree(choices.source);
  }
  for (void* memory : {panels, plain, x, codes_of_x, out}) cudaFree(memory);
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  using namespace troupe;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::pair<const char*, CodeKind> names[] = {
      {"mxfp4", CodeKind::e2m1}, {"int4", CodeKind::int4}, {"fp8", CodeKind::e4m3}};
  std::vector<CodeKind> kinds;
  std::vector<std::int64_t> tokens;
  for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
    const auto kind = std::ranges::find(names, argument, &std::pair<const char*, CodeKind>::first);
    if (kind != std::end(names)) {
      kinds.push_back(kind->second);
    } else {
      tokens.push_back(std::atoll(argument.c_str()));
    }
  }
  if (kinds.empty()) kinds = {CodeKind::e2m1};
  if (tokens.empty()) tokens = {1, 8, 64, 256, 512, 1024, 8192};
  const Bench bench;
  for (const CodeKind kind : kinds) {
    for (const Matrix& matrix : {Matrix{"GPT-OSS gates", 5760, 2880, 32, 4, true},
                                 Matrix{"GPT-OSS down", 2880, 2880, 32, 4, false},
                                 Matrix{"Qwen3 gates", 1536, 2048, 128, 8, true},
                                 Matrix{"Qwen3 down", 2048, 768, 128, 8, false}}) {
      measure(bench, matrix, kind, tokens);
    }
  }
}
