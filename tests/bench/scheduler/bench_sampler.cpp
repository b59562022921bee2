// Time to sample one token and to find logprobs, over vocabularies and settings. Prints medians.
#include <cstdio>
#include <random>

#include "models/sampler/sampler.hpp"
#include "tests/bench/scheduler/timing.hpp"

namespace troupe {
namespace {

struct Setting {
  const char* name;
  float temperature;
  std::int32_t top_k;
  float top_p;
  float min_p;
};

constexpr Setting settings[] = {
    {"greedy", 0.0F, 0, 1.0F, 0.0F},           {"temperature", 1.0F, 0, 1.0F, 0.0F},
    {"top_k 50", 0.7F, 50, 1.0F, 0.0F},        {"top_p 0.95", 1.0F, 0, 0.95F, 0.0F},
    {"min_p 0.05", 1.0F, 0, 1.0F, 0.05F},      {"all three", 0.7F, 50, 0.9F, 0.05F},
    {"top_p 0.95, hot", 3.0F, 0, 0.95F, 0.0F},
};

/// A greedy token after a prompt of 800 tokens and an output of 200, with the edits of requests.
void run_edits(const std::vector<float>& logits, SamplerScratch& scratch) {
  std::vector<std::int32_t> tokens(1000);
  std::mt19937 random(2);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % logits.size());
  const TokenHistory history{std::span(tokens).first(800), std::span(tokens).subspan(800)};
  SamplingParams plain;
  plain.temperature = 0.0F;
  SamplingParams penalties = plain;
  penalties.repetition_penalty = 1.1F;
  penalties.frequency_penalty = 0.5F;
  SamplingParams words = plain;
  for (std::int32_t i = 0; i < 100; ++i) words.bad_words.push_back({i, i + 1, i + 2});
  SamplingParams allowed = plain;
  for (std::int32_t i = 0; i < 1000; ++i) allowed.allowed_token_ids.push_back(2 * i);
  const std::pair<const char*, const SamplingParams*> edits[] = {
      {"no edits", &plain},
      {"penalties", &penalties},
      {"100 bad words", &words},
      {"1000 allowed", &allowed},
  };
  for (const auto& [name, params] : edits) {
    std::vector<double> samples;
    samples.reserve(400);
    std::int64_t sum = 0;
    for (int i = 0; i < 400; ++i) {
      samples.push_back(
          bench::time_us([&] { sum += sample(logits, *params, history, scratch).id; }));
    }
    std::printf("vocab %6zu  %-16s %8.1f us (check %lld)\n", logits.size(), name,
                bench::quantile(samples, 0.5), static_cast<long long>(sum));
  }
}

void run(std::size_t vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  SamplerScratch scratch;
  for (const Setting& setting : settings) {
    SamplingParams params;
    params.temperature = setting.temperature;
    params.top_k = setting.top_k;
    params.top_p = setting.top_p;
    params.min_p = setting.min_p;
    std::vector<double> samples;
    samples.reserve(400);
    std::int64_t sum = 0;
    for (std::uint64_t position = 0; position < 400; ++position) {
      samples.push_back(
          bench::time_us([&] { sum += sample(logits, params, position, 0, scratch).id; }));
    }
    std::printf("vocab %6zu  %-16s %8.1f us (check %lld)\n", vocab, setting.name,
                bench::quantile(samples, 0.5), static_cast<long long>(sum));
  }
  run_edits(logits, scratch);
  for (const std::int32_t n : {0, 20}) {
    std::vector<double> samples;
    samples.reserve(400);
    for (int i = 0; i < 400; ++i) {
      samples.push_back(bench::time_us([&] { token_logprobs(logits, i, n, scratch); }));
    }
    std::printf("vocab %6zu  logprobs, %2d best %8.1f us\n", vocab, n,
                bench::quantile(samples, 0.5));
  }
}

}  // namespace
}  // namespace troupe

int main() {
  troupe::run(4096);
  troupe::run(151936);
}
