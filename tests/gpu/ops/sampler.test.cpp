// Tokens sampled and scored on the GPU equal those of models/sampler on the host, to the last bit.
#include "models/sampler/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <future>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cuda/cuda_ops.hpp"

namespace troupe {
namespace {

constexpr int kinds = 11;

/// Logits of one kind: random, tied, extreme, sorted, peaked, not finite or closer together than
/// their weights resolve.
void fill(std::span<float> logits, int kind, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 3.0F);
  float place = 0.0F;
  for (float& logit : logits) {
    logit = normal(random);
    place += 1e-4F;
    if (kind == 1) logit = 1.25F;
    if (kind == 2) logit = std::round(logit);
    if (kind == 3) logit = random() % 2 == 0 ? -3e38F : 1e36F * logit;
    if (kind == 4) logit = place;
    if (kind == 5) logit = -place;
    if (kind == 6 && random() % 5000 == 0) logit += 20.0F;
    if (kind == 7) logit *= 0.02F;
    if (kind == 8) logit = static_cast<float>(random() % 3) - 50.0F;
    if (kind == 10) logit *= 1e-9F;
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  if (kind == 9) logits[random() % logits.size()] = bad[random() % 3];
}

SamplingParams random_params(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<float> options) {
    return options.begin()[random() % options.size()];
  };
  SamplingParams params;
  params.temperature = pick({0.6F, 1.0F, 0.3F, 2e-5F, 3.0F, 0.0F, 1e6F, 0.9F});
  params.top_k = static_cast<std::int32_t>(pick({0, 20, 1, 50, 512, 400, 513, 5000, 100000}));
  params.top_p = pick({1.0F, 0.95F, 0.5F, 1e-6F, 0.999F, 0.9F});
  params.min_p = pick({0.0F, 0.0F, 0.05F, 0.0F, 1.0F, 1e-4F});
  params.seed = random();
  params.choice = static_cast<std::uint32_t>(random() % 3);
  return params;
}

class GpuSampler : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    auto cuda = make_cuda_ops({.device = 0, .dtype = DType::f32});
    if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
    gpu_ = *std::move(cuda);
    for (std::int64_t row = 0; row < rows_; ++row) {
      fill(row_of(row), static_cast<int>(row % kinds), random_);
      params_.push_back(random_params(random_));
      chosen_.push_back({.row = static_cast<std::int32_t>(row),
                         .choice = params_.back().choice,
                         .seed = params_.back().seed,
                         .position = random_(),
                         .temperature = params_.back().temperature,
                         .top_p = params_.back().top_p,
                         .min_p = params_.back().min_p,
                         .top_k = params_.back().top_k});
    }
    expected_ = hosts_tokens();
    device_logits_ = room(DType::f32, {rows_, vocab_});
    gpu_->memory().upload(logits_, device_logits_);
    ids_ = room(DType::i32, {rows_});
  }

  std::span<float> row_of(std::int64_t row) { return logits_->rows(row, 1).span<float>(); }
  DeviceTensor room(DType dtype, const Shape& shape) {
    auto tensor = gpu_->memory().allocate(dtype, shape);
    EXPECT_TRUE(tensor.ok()) << tensor.error().message;
    return *std::move(tensor);
  }
  template <class T, class Compute>
  std::vector<T> on_all_threads(Compute compute) {
    std::vector<T> values(static_cast<std::size_t>(rows_));
    constexpr std::size_t threads = 8;
    std::vector<std::future<void>> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.push_back(std::async(std::launch::async, [&, t] {
        SamplerScratch scratch;
        for (std::size_t i = t; i < values.size(); i += threads) values[i] = compute(i, scratch);
      }));
    }
    for (auto& thread : running) thread.get();
    return values;
  }
  std::vector<std::int32_t> hosts_tokens() {
    return on_all_threads<std::int32_t>([&](std::size_t i, SamplerScratch& scratch) {
      return sample(row_of(static_cast<std::int64_t>(i)), params_[i], chosen_[i].position,
                    params_[i].choice, scratch)
          .id;
    });
  }
  void sample_on_device(const Tensor& edited = {}) {
    for (const SampledRow& row : chosen_) ASSERT_TRUE(gpu_->sampling().can_sample(row, vocab_));
    gpu_->sampling().sample(device_logits_, chosen_, edited, ids_);
  }
  void expect_the_hosts_tokens() {
    const HostTensor found(DType::i32, {rows_});
    gpu_->memory().download(ids_, found);
    const auto done = gpu_->stream().synchronize();
    ASSERT_TRUE(done.ok()) << done.error().message;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      EXPECT_EQ(found->as<std::int32_t>()[i], expected_[i]) << describe(i);
    }
  }
  /// Adds some of LogitsEditor's edits; ids may be outside of the vocabulary.
  void add_random_edits(SamplingParams& params, std::vector<std::int32_t>& prompt,
                        std::vector<std::int32_t>& output) {
    const auto one_in = [&](std::uint32_t n) { return random_() % n == 0; };
    const auto id = [&] {
      return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(vocab_));
    };
    const auto any_id = [&](std::int64_t among) {
      return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(among + 2)) - 1;
    };
    const std::int64_t among = one_in(2) ? vocab_ : std::min<std::int64_t>(vocab_, 40);
    for (std::size_t n = 1 + random_() % 300; n > 0; --n) prompt.push_back(any_id(among));
    for (std::size_t n = random_() % 200; n > 0; --n) output.push_back(any_id(among));
    if (one_in(2)) params.repetition_penalty = one_in(2) ? 1.05F : 0.7F;
    if (one_in(3)) params.frequency_penalty = one_in(2) ? 0.37F : -1.3F;
    if (one_in(3)) params.presence_penalty = one_in(2) ? 1.1F : -0.2F;
    for (std::int32_t token = id(); one_in(3) && token < vocab_; token += 1 + id() / 8) {
      params.logit_bias.push_back({token, static_cast<float>(random_() % 200) - 100.0F});
    }
    if (one_in(4)) {
      params.min_tokens = 100;
      params.stop_token_ids = {id(), id(), any_id(vocab_)};
    }
    for (std::size_t n = one_in(4) ? 1 + random_() % 400 : 0; n > 0; --n) {
      params.allowed_token_ids.push_back(any_id(vocab_));
    }
    if (one_in(4)) params.bad_words.push_back({id()});
    if (one_in(4) && !output.empty()) params.bad_words.push_back({output.back(), id()});
  }

  static RowEdits lists_of(const SamplingParams& params, const TokenHistory& history,
                           std::vector<std::int32_t>& tokens) {
    const auto add = [&](std::span<const std::int32_t> ids) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return static_cast<std::int32_t>(ids.size());
    };
    RowEdits edits;
    edits.first = static_cast<std::int32_t>(tokens.size());
    edits.allowed = add(params.allowed_token_ids);
    std::vector<std::int32_t> masked;
    append_masked(params, history, masked);
    edits.masked = add(masked);
    for (const auto& [token, bias] : params.logit_bias) {
      add(std::vector{token, std::bit_cast<std::int32_t>(bias)});
    }
    edits.biased = static_cast<std::int32_t>(params.logit_bias.size());
    edits.history = static_cast<std::int32_t>(tokens.size());
    if (penalizes(params)) {
      edits.prompt = add(history.prompt);
      edits.output = add(history.output);
    }
    edits.repetition_penalty = params.repetition_penalty;
    edits.frequency_penalty = params.frequency_penalty;
    edits.presence_penalty = params.presence_penalty;
    return edits;
  }

  std::string describe(std::size_t row) const {
    const SamplingParams& params = params_[row];
    return "row " + std::to_string(row) + " of kind " + std::to_string(row % kinds) +
           ", temperature " + std::to_string(params.temperature) + ", top_k " +
           std::to_string(params.top_k) + ", top_p " + std::to_string(params.top_p) + ", min_p " +
           std::to_string(params.min_p);
  }

  std::int64_t vocab_ = GetParam();
  std::int64_t rows_ = vocab_ > 100000 ? 120 : vocab_ > 100 ? 400 : 1300;
  std::mt19937 random_{static_cast<std::uint32_t>(vocab_)};
  std::unique_ptr<Ops> gpu_;
  HostTensor logits_{DType::f32, {rows_, vocab_}};
  std::vector<SamplingParams> params_;
  std::vector<SampledRow> chosen_;
  std::vector<std::int32_t> expected_;
  DeviceTensor device_logits_, ids_;
};

// Odd sizes, and sizes around the limits of a list and of the parts of a row.
INSTANTIATE_TEST_SUITE_P(Vocabularies, GpuSampler,
                         testing::Values(1, 2, 7, 50, 129, 511, 512, 513, 4096, 32003, 151936,
                                         262144),
                         testing::PrintToStringParamName());

TEST_P(GpuSampler, chooses_what_the_host_chooses) {
  std::ranges::shuffle(chosen_, random_);
  sample_on_device();
  expect_the_hosts_tokens();
}

TEST_P(GpuSampler, draws_from_all_tokens_and_from_a_nucleus_what_the_host_draws) {
  constexpr float top_ps[] = {0.95F, 0.5F, 0.999F, 1e-6F};
  for (int draw = 0; draw < 6; ++draw) {
    for (std::size_t i = 0; i < params_.size(); ++i) {
      SamplingParams& params = params_[i];
      params.top_k = 0;
      params.min_p = 0.0F;
      if (params.temperature == 0.0F) params.temperature = 0.6F;
      chosen_[i].top_k = params.top_k;
      chosen_[i].min_p = params.min_p;
      chosen_[i].top_p = params.top_p = draw % 2 == 0 ? 1.0F : top_ps[i % 4];
      chosen_[i].temperature = params.temperature;
      chosen_[i].position = random_();
    }
    expected_ = hosts_tokens();
    sample_on_device();
    expect_the_hosts_tokens();
  }
}

TEST_P(GpuSampler, edits_logits_as_the_host_does) {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<std::int32_t>> prompts, outputs;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    add_random_edits(params_[i], prompts.emplace_back(), outputs.emplace_back());
    const TokenHistory history{prompts[i], outputs[i]};
    chosen_[i].position = prompts[i].size() + outputs[i].size();
    chosen_[i].edits = lists_of(params_[i], history, tokens);
  }
  std::ranges::stable_partition(chosen_,
                                [](const SampledRow& row) { return row.edits.tokens() == 0; });
  expected_ = on_all_threads<std::int32_t>([&](std::size_t i, SamplerScratch& scratch) {
    return sample(row_of(static_cast<std::int64_t>(i)), params_[i],
                  TokenHistory{prompts[i], outputs[i]}, scratch)
        .id;
  });
  const Shape shape{static_cast<std::int64_t>(tokens.size())};
  const DeviceTensor edited = room(DType::i32, shape);
  gpu_->memory().upload(Tensor(tokens.data(), DType::i32, shape), edited);
  sample_on_device(edited);
  expect_the_hosts_tokens();
}

TEST_P(GpuSampler, scores_what_the_host_scores) {
  std::vector<ScoredRow> wanted;
  for (std::int32_t row = 0; row < rows_; ++row) {
    const auto given = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(vocab_));
    const std::int32_t bests[] = {0, 1, 5, 20, RowScores::max_best};
    wanted.push_back({.row = row, .id = row % 3 == 0 ? given : -1, .best = bests[random_() % 5]});
    ASSERT_TRUE(gpu_->sampling().can_score(wanted.back(), vocab_));
  }
  const auto id_of = [&](std::size_t i) { return wanted[i].id >= 0 ? wanted[i].id : expected_[i]; };
  const auto expected = on_all_threads<TokenLogprobs>([&](std::size_t i, SamplerScratch& scratch) {
    const auto row = row_of(static_cast<std::int64_t>(i));
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) return TokenLogprobs{};
    return token_logprobs(row, id_of(i), wanted[i].best, scratch);
  });
  sample_on_device();
  const Shape bytes{rows_ * static_cast<std::int64_t>(sizeof(RowScores))};
  const DeviceTensor scores = room(DType::u8, bytes);
  gpu_->sampling().score(device_logits_, wanted, ids_, scores);
  const HostTensor host(DType::u8, bytes);
  gpu_->memory().download(scores, host);
  const auto done = gpu_->stream().synchronize();
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const RowScores& found = static_cast<const RowScores*>(host->data())[i];
    ASSERT_EQ(found.rank, expected[i].rank) << describe(i);
    if (found.rank == 0) continue;
    EXPECT_EQ(found.id, id_of(i)) << describe(i);
    EXPECT_EQ(log_probability(found.logit, found.max, found.sum), expected[i].logprob)
        << describe(i);
    for (std::size_t j = 0; j < expected[i].top_ids.size(); ++j) {
      EXPECT_EQ(found.best_ids[j], expected[i].top_ids[j]) << describe(i) << ", place " << j;
      EXPECT_EQ(log_probability(found.best_logits[j], found.max, found.sum),
                expected[i].top_logprobs[j])
          << describe(i) << ", place " << j;
    }
  }
}

TEST(GpuSamplerLimits, leave_vocabularies_that_no_cluster_holds_to_the_host) {
  auto gpu = make_cuda_ops({.device = 0, .dtype = DType::f32});
  if (!gpu.ok()) GTEST_SKIP() << "no GPU: " << gpu.error().message;
  EXPECT_TRUE((*gpu)->sampling().can_sample({}, 262144));
  EXPECT_FALSE((*gpu)->sampling().can_sample({}, 500000));
  EXPECT_FALSE(
      (*gpu)->sampling().can_score({.row = 0, .id = 0, .best = RowScores::max_best + 1}, 1000));
}

}  // namespace
}  // namespace troupe
