#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/bench/ops/peers.hpp"

namespace troupe::bench {
namespace {

constexpr std::size_t page_bytes = 4096, line_bytes = 64;

/// Sums every `step`-th of the pages listed in `order`, prefetching each page while it reads the
/// one before.
float read_pages(const std::vector<float>& memory, const std::vector<std::size_t>& order,
                 std::size_t from, std::size_t step) {
  constexpr std::size_t floats = page_bytes / sizeof(float), lanes = line_bytes / sizeof(float);
  float sums[4 * lanes] = {};
  for (std::size_t i = from; i < order.size(); i += step) {
    const float* page = memory.data() + order[i] * floats;
    const float* next = memory.data() + order[std::min(i + step, order.size() - 1)] * floats;
    for (std::size_t at = 0; at < floats; at += 4 * lanes) {
      for (std::size_t line = 0; line < 4; ++line) {
        __builtin_prefetch(next + at + line * lanes, 0, 2);
      }
      for (std::size_t lane = 0; lane < 4 * lanes; ++lane) sums[lane] += page[at + lane];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), 0.0F);
}

}  // namespace

double page_ceiling(int threads, std::size_t bytes) {
  const std::vector<float> memory(bytes / sizeof(float), 1.0F);
  std::vector<std::size_t> order(bytes / page_bytes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));  // NOLINT(cert-msc51-cpp)
  double best = 0;
  volatile float kept = 0;
  for (int run = 0; run < 9; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> readers;
    std::vector<float> sums(threads);
    for (int t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] { sums[t] = read_pages(memory, order, t, threads); });
    }
    for (std::thread& reader : readers) reader.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    kept = kept + std::accumulate(sums.begin(), sums.end(), 0.0F);
    best = std::max(best, static_cast<double>(bytes) / seconds.count());
  }
  return best / 1e9;
}

}  // namespace troupe::bench
