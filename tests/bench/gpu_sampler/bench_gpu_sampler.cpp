// Time to sample and to score tokens on a GPU from the logits of a pass, beside the time to read
// the logits at the bandwidth of the same run. Prints medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "models/ops/cuda/cuda_ops.hpp"

namespace troupe {
namespace {

constexpr std::int64_t vocab = 151936;
constexpr std::int64_t max_rows = 256;
constexpr std::int32_t history = 1500;

template <class T>
T checked(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

/// Microseconds per call of `calls` enqueued at once; the median of five tries.
double time_us(Ops& ops, int calls, const std::function<void(int)>& call) {
  std::vector<double> tries;
  for (int i = 0; i < 6; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int c = 0; c < calls; ++c) call(c);
    if (const auto done = ops.stream().synchronize(); !done.ok()) std::exit(1);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) tries.push_back(took.count() / calls);  // the first one warms up
  }
  std::ranges::nth_element(tries, tries.begin() + 2);
  return tries[2];
}

/// Bytes per microsecond that the device reads and writes: adding one large tensor to another.
double bandwidth(Ops& ops) {
  const Shape shape{std::int64_t{1} << 14, std::int64_t{1} << 14};
  const DeviceTensor sum = checked(ops.memory().allocate(DType::f32, shape));
  const DeviceTensor added = checked(ops.memory().allocate(DType::f32, shape));
  return 3.0 * static_cast<double>(sum->bytes()) /
         time_us(ops, 10, [&](int) { ops.dense().add(sum, added); });
}

/// Logits like a model's: most tokens far below the few likely ones.
HostTensor make_logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 2.2F), likely(9.0F, 5.0F);
  HostTensor logits(DType::f32, {max_rows, vocab});
  for (float& logit : logits->span<float>()) logit = normal(random);
  for (std::int64_t row = 0; row < max_rows; ++row) {
    for (int i = 0; i < 200; ++i) {
      logits->rows(row, 1).as<float>()[random() % std::uint64_t{vocab}] = likely(random);
    }
  }
  return logits;
}

void run() {
  const auto ops = checked(make_cuda_ops({.device = 0, .dtype = DType::f32}));
  const double bytes_per_us = bandwidth(*ops);
  std::printf("%.2f TB/s; vocabulary of %lld; us a call\n%-28s", bytes_per_us / 1e6,
              static_cast<long long>(vocab), "rows");
  constexpr std::int64_t counts[] = {1, 8, 32, 64, 128, 256};
  for (const std::int64_t rows : counts) std::printf("%8lld", static_cast<long long>(rows));
  std::printf("\n%-28s", "reading the logits");
  for (const std::int64_t rows : counts) {
    std::printf("%8.1f", static_cast<double>(rows * vocab) * sizeof(float) / bytes_per_us);
  }
  std::printf("\n");

  const HostTensor host = make_logits();
  const DeviceTensor logits = checked(ops->memory().allocate(DType::f32, host->shape()));
  ops->memory().upload(host, logits);
  const DeviceTensor ids = checked(ops->memory().allocate(DType::i32, {max_rows}));
  const DeviceTensor scores = checked(
      ops->memory().allocate(DType::u8, {max_rows * static_cast<std::int64_t>(sizeof(RowScores))}));
  // Calls take turns over the logits, so that few rows come from memory too.
  const auto logits_of = [&](int call, std::int64_t rows) {
    return logits->rows(call * rows % max_rows, rows);
  };
  // Histories of 1,500 tokens, for repetition penalties.
  HostTensor histories(DType::i32, {max_rows * history});
  for (std::int32_t id = 0; std::int32_t& token : histories->span<std::int32_t>()) {
    token = (id += 7919) % static_cast<std::int32_t>(vocab);
  }
  const DeviceTensor edited = checked(ops->memory().allocate(DType::i32, histories->shape()));
  ops->memory().upload(histories, edited);
  // Rows go to the device as a worker sends them.
  const DeviceTensor page_locked = checked(ops->memory().allocate_host(
      DType::u8, {max_rows * static_cast<std::int64_t>(sizeof(SampledRow))}));
  struct Setting {
    const char* name;
    SampledRow row;
  };
  const Setting settings[] = {
      {"greedy", {.temperature = 0.0F}},
      {"temperature 0.6", {.temperature = 0.6F}},
      {"top_k 20, top_p 0.95, 0.6", {.temperature = 0.6F, .top_p = 0.95F, .top_k = 20}},
      {"top_k 50", {.top_k = 50}},
      {"top_p 0.9, 0.6", {.temperature = 0.6F, .top_p = 0.9F}},
      {"top_p 0.95", {.top_p = 0.95F}},
      {"min_p 0.05", {.min_p = 0.05F}},
      {"top_k 1000, top_p 0.95", {.top_p = 0.95F, .top_k = 1000}},
      {"top_p 0.95, temperature 3", {.temperature = 3.0F, .top_p = 0.95F}},
      {"top_k 20, penalty",
       {.temperature = 0.7F,
        .top_p = 0.8F,
        .top_k = 20,
        .edits = {.prompt = 1000, .output = history - 1000, .repetition_penalty = 1.05F}}},
  };
  for (const Setting& setting : settings) {
    std::printf("%-28s", setting.name);
    for (const std::int64_t rows : counts) {
      const std::span<SampledRow> wanted(static_cast<SampledRow*>(page_locked->data()),
                                         static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] = setting.row;
        wanted[i].row = static_cast<std::int32_t>(i);
        wanted[i].seed = i;
        wanted[i].edits.history = static_cast<std::int32_t>(i) * history;
      }
      std::printf("%8.1f", time_us(*ops, 32, [&](int call) {
                    ops->sampling().sample(logits_of(call, rows), wanted, edited,
                                           ids->rows(0, rows));
                  }));
    }
    std::printf("\n");
  }
  std::printf("%-28s", "log-probabilities, 5 best");
  for (const std::int64_t rows : counts) {
    std::vector<ScoredRow> wanted;
    for (std::int32_t i = 0; i < rows; ++i) wanted.push_back({.row = i, .id = 7, .best = 5});
    std::printf("%8.1f", time_us(*ops, 32, [&](int call) {
                  ops->sampling().score(logits_of(call, rows), wanted, ids->rows(0, rows), scores);
                }));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace troupe

int main() { troupe::run(); }
