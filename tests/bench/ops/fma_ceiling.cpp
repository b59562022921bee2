#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <immintrin.h>

#include "tests/bench/ops/peers.hpp"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Twelve independent chains hide the latency of an FMA; the empty asm keeps them in registers, and
// noinline keeps the caller from storing them.
__attribute__((noinline, target("avx512f"))) void chains_avx512(std::int64_t rounds) {
  __m512 sum[12];
  for (auto& x : sum) x = _mm512_set1_ps(1.0F);
  const __m512 a = _mm512_set1_ps(0.999F);
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (auto& x : sum) {
      x = _mm512_fmadd_ps(x, a, a);
      asm volatile("" : "+v"(x));
    }
  }
}

__attribute__((noinline, target("avx2,fma"))) void chains_avx2(std::int64_t rounds) {
  __m256 sum[12];
  for (auto& x : sum) x = _mm256_set1_ps(1.0F);
  const __m256 a = _mm256_set1_ps(0.999F);
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (auto& x : sum) {
      x = _mm256_fmadd_ps(x, a, a);
      asm volatile("" : "+x"(x));
    }
  }
}

}  // namespace

double fma_ceiling(int threads, bool avx512, double seconds) {
  std::vector<double> rates(threads);
  const auto measure = [&](int member) {
    constexpr std::int64_t rounds = 100'000;
    const double flops = 2.0 * 12 * (avx512 ? 16 : 8) * rounds;
    const auto begin = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
      const auto start = Clock::now();
      avx512 ? chains_avx512(rounds) : chains_avx2(rounds);
      const double spent = std::chrono::duration<double>(Clock::now() - start).count();
      rates[member] = std::max(rates[member], flops / spent / 1e9);
    }
  };
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(measure, i);
  measure(0);
  for (auto& thread : team) thread.join();
  double total = 0;
  for (const double rate : rates) total += rate;
  return total;
}

}  // namespace troupe::bench
