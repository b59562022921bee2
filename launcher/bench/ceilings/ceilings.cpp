#include "launcher/bench/ceilings/ceilings.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include <immintrin.h>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t fma_rounds = 50'000;
constexpr int chains = 12;
constexpr std::size_t max_bytes = std::size_t{1} << 30;
constexpr std::size_t bytes_per_thread = std::size_t{128} << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Twelve independent chains hide the latency of a multiply-add. The empty asm keeps them in
// registers, and noinline keeps the compiler from seeing that the sums are unused.
__attribute__((noinline, target("avx512f"))) void multiply_add_512() {
  __m512 sums[chains];
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(0.999F);
  for (std::int64_t round = 0; round < fma_rounds; ++round) {
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, factor, factor);
      asm volatile("" : "+v"(sum));
    }
  }
}

__attribute__((noinline)) void multiply_add_256() {
  __m256 sums[chains];
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(0.999F);
  for (std::int64_t round = 0; round < fma_rounds; ++round) {
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(sum, factor, factor);
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((noinline)) void read_all(const std::vector<std::uint64_t>& memory) {
  constexpr std::size_t line_words = 8;
  __m256i sums[4] = {};
  for (std::size_t i = 0; i + 2 * line_words <= memory.size(); i += 2 * line_words) {
    for (std::size_t part = 0; part < 4; ++part) {
      const auto* place = reinterpret_cast<const __m256i*>(memory.data() + i + 4 * part);
      sums[part] = _mm256_xor_si256(sums[part], _mm256_loadu_si256(place));
    }
  }
  for (auto& sum : sums) asm volatile("" : "+x"(sum));
}

double measure_reading(int threads, double seconds) {
  const std::size_t bytes =
      std::min(bytes_per_thread, max_bytes / static_cast<std::size_t>(threads));
  std::vector<std::vector<std::uint64_t>> memory(static_cast<std::size_t>(threads));
  return rate_of(threads, seconds, [&memory, bytes](int thread) {
    // A page is placed on the NUMA node of the core that first writes to it: each thread fills its
    // own.
    auto& own = memory[static_cast<std::size_t>(thread)];
    if (own.empty()) own.assign(bytes / sizeof(std::uint64_t), 1);
    read_all(own);
    return static_cast<double>(own.size() * sizeof(std::uint64_t));
  });
}

}  // namespace

double rate_of(int threads, double seconds, const std::function<double(int thread)>& round) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::latch all_ready(threads);
  const auto measure = [&](int thread) {
    double done = 0;
    (void)round(thread);  // lets pages and frequencies settle
    all_ready.arrive_and_wait();
    const auto begin = Clock::now();
    do {
      done += round(thread);
    } while (seconds_since(begin) < seconds);
    rates[static_cast<std::size_t>(thread)] = done / seconds_since(begin);
  };
  std::vector<std::thread> team;
  for (int thread = 1; thread < threads; ++thread) team.emplace_back(measure, thread);
  measure(0);
  for (std::thread& member : team) member.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double measure_operations(int threads, bool avx512, double seconds) {
  return rate_of(threads, seconds, [avx512](int) {
    avx512 ? multiply_add_512() : multiply_add_256();
    return 2.0 * chains * (avx512 ? 16 : 8) * static_cast<double>(fma_rounds);
  });
}

Ceilings measure_ceilings(int threads, double seconds) {
  threads = std::max(threads, 1);
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return {.operations_per_second = measure_operations(threads, wide, seconds),
          .bytes_per_second = measure_reading(threads, seconds)};
}

}  // namespace troupe
