#include "actors/worker/sampling/row_sampler.hpp"

#include <chrono>
#include <future>
#include <limits>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "tests/unit/actors/worker/delayed_ops.hpp"

namespace troupe {
namespace {

constexpr std::int64_t vocab = 300;

HostTensor random_logits(std::int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  HostTensor logits(DType::f32, {rows, vocab});
  for (float& logit : logits->span<float>()) logit = normal(random);
  return logits;
}

RowSampler make_sampler(Ops& ops, std::int64_t max_rows, const RankGroup& tensor = {},
                        const RankGroup& context = {}) {
  auto made = RowSampler::create(ops, tensor, max_rows, vocab, context);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

/// Rows of all kinds: sampled with and without cuts, edits and log-probabilities, and scored.
struct MixedRows {
  explicit MixedRows(std::size_t count) : sampling(count) {
    for (std::size_t i = 0; i < count; ++i) {
      SamplingParams& params = sampling[i];
      params.seed = 100 + i;
      if (i % 5 == 1) params.top_k = 4;
      if (i % 5 == 2) params.logprobs = static_cast<std::int32_t>(i % 3);
      if (i % 5 == 3) params.repetition_penalty = 2.0F;
      if (i % 5 == 4) params.prompt_logprobs = 2;
      const bool sample = i % 5 != 4;
      rows.push_back({.sampling = &params,
                      .position = 2,
                      .sample = sample,
                      .scored = sample ? -1 : 17,
                      .history = {std::span(tokens).first(2), std::span(tokens).last(1)}});
    }
  }

  std::vector<std::int32_t> tokens = {1, 2, 3};
  std::vector<SamplingParams> sampling;
  std::vector<LogitsRow> rows;
};

void expect_near(const TokenLogprobs& found, const TokenLogprobs& expected, std::size_t row) {
  EXPECT_NEAR(found.logprob, expected.logprob, 1e-5F) << "row " << row;
  EXPECT_EQ(found.rank, expected.rank) << "row " << row;
  EXPECT_EQ(found.top_ids, expected.top_ids) << "row " << row;
  ASSERT_EQ(found.top_logprobs.size(), expected.top_logprobs.size()) << "row " << row;
  for (std::size_t i = 0; i < found.top_logprobs.size(); ++i) {
    EXPECT_NEAR(found.top_logprobs[i], expected.top_logprobs[i], 1e-5F) << "row " << row;
  }
}

void expect_chosen_by_the_sampler(const std::vector<RowChoice>& found, const MixedRows& wanted,
                                  const Tensor& logits) {
  SamplerScratch scratch;
  ASSERT_EQ(found.size(), wanted.rows.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const LogitsRow& row = wanted.rows[i];
    const auto row_logits = logits.rows(static_cast<std::int64_t>(i), 1).span<float>();
    const std::int32_t id =
        row.sample ? sample(row_logits, *row.sampling, row.history, scratch).id : row.scored;
    const std::int32_t best = row.sample ? row.sampling->logprobs : row.sampling->prompt_logprobs;
    EXPECT_EQ(found[i].id, id) << "row " << i;
    EXPECT_FALSE(found[i].failed) << "row " << i;
    const TokenLogprobs scores =
        best < 0 ? TokenLogprobs{} : token_logprobs(row_logits, id, best, scratch);
    expect_near(found[i].scores, scores, i);
  }
}

TEST(RowSampler, each_row_gets_what_the_sampler_chooses_on_the_host_or_on_the_device) {
  const HostTensor logits = random_logits(13, 1);
  const MixedRows wanted(13);
  auto host = make_cpu_ops({.threads = 1});
  ASSERT_TRUE(host.ok()) << host.error().message;
  DelayedOps device, scoring_device({.scores = true, .edits = true});
  for (Ops* ops : {host->get(), static_cast<Ops*>(&device), static_cast<Ops*>(&scoring_device)}) {
    RowSampler sampler = make_sampler(*ops, 16);
    for (int pass = 0; pass < 3; ++pass) {
      const auto begun = sampler.begin(logits, wanted.rows, std::ssize(wanted.rows));
      ASSERT_TRUE(begun.ok()) << begun.error().message;
      const auto choices = sampler.finish();
      ASSERT_TRUE(choices.ok()) << choices.error().message;
      expect_chosen_by_the_sampler(*choices, wanted, logits);
    }
  }
}

TEST(RowSampler, logits_that_the_device_samples_do_not_leave_it) {
  const HostTensor logits = random_logits(10, 2);
  MixedRows wanted(10);
  DelayedOps ops;
  RowSampler sampler = make_sampler(ops, 10);
  ASSERT_TRUE(sampler.on_device(wanted.rows[0]));
  ASSERT_FALSE(sampler.on_device(wanted.rows[1]));
  ASSERT_TRUE(sampler.begin(logits, wanted.rows, std::ssize(wanted.rows)).ok());
  wanted.sampling[0].logprobs = 3;  // its sequence may belong to another by now
  const auto choices = sampler.finish();
  ASSERT_TRUE(choices.ok()) << choices.error().message;
  const std::size_t ids = 10 * sizeof(std::int32_t), row = vocab * sizeof(float);
  EXPECT_EQ(ops.downloaded_bytes(), ids + 8 * row) << "two of ten rows are the device's";
  EXPECT_EQ(sampler.chosen().as<std::int32_t>()[5], (*choices)[5].id);
  EXPECT_EQ(choices->front().scores, TokenLogprobs());
}

TEST(RowSampler, logits_that_the_device_scores_do_not_leave_it_either) {
  const HostTensor logits = random_logits(10, 2);
  MixedRows wanted(10);
  wanted.sampling[2].logprobs = RowScores::max_best + 1;
  DelayedOps ops({.scores = true});
  RowSampler sampler = make_sampler(ops, 10);
  EXPECT_FALSE(sampler.on_device(wanted.rows[2])) << "too many alternatives";
  EXPECT_FALSE(sampler.on_device(wanted.rows[3])) << "a penalty";
  EXPECT_FALSE(sampler.on_device(wanted.rows[4])) << "a score is wanted";
  EXPECT_FALSE(sampler.on_device(wanted.rows[7])) << "log-probabilities are wanted";
  ASSERT_TRUE(sampler.begin(logits, wanted.rows, std::ssize(wanted.rows)).ok());
  const auto choices = sampler.finish();
  ASSERT_TRUE(choices.ok()) << choices.error().message;
  expect_chosen_by_the_sampler(*choices, wanted, logits);
  const std::size_t ids = 10 * sizeof(std::int32_t), scores = 10 * sizeof(RowScores);
  EXPECT_EQ(ops.downloaded_bytes(), ids + scores + 5 * vocab * sizeof(float));
}

TEST(RowSampler, rows_with_edits_are_chosen_on_the_device_from_their_history) {
  const HostTensor logits = random_logits(8, 8);
  std::vector<SamplingParams> sampling(8);
  sampling[0].repetition_penalty = 1.3F;
  sampling[1].frequency_penalty = 0.5F;
  sampling[1].presence_penalty = -0.7F;
  sampling[2].logit_bias = {{5, 9.0F}, {1, -4.0F}, {299, 3.5F}};
  sampling[3].min_tokens = 50;
  sampling[3].stop_token_ids = {7, 8, 9};
  sampling[4].allowed_token_ids = {3, 77, 150, 151};
  sampling[5].bad_words = {{2, 60}, {61}, {5, 62}};
  sampling[6].min_tokens = 2;  // it has that many
  sampling[7] = sampling[0];
  sampling[7].logit_bias = sampling[2].logit_bias;
  sampling[7].allowed_token_ids = {1, 5, 6, 7, 299};
  sampling[7].logprobs = 1;
  MixedRows wanted(0);
  wanted.tokens = {1, 5, 1, 299, 2, 2};
  for (std::size_t i = 0; i < 8; ++i) {
    sampling[i].seed = i;
    wanted.rows.push_back(
        {.sampling = &sampling[i],
         .position = 5,
         .sample = true,
         .scored = -1,
         .history = {std::span(wanted.tokens).first(3), std::span(wanted.tokens).last(3)}});
  }
  DelayedOps ops({.scores = true, .edits = true});
  RowSampler sampler = make_sampler(ops, 8);
  EXPECT_TRUE(sampler.on_device(wanted.rows[0]));
  EXPECT_FALSE(sampler.on_device(wanted.rows[5])) << "the host compares the history's end";
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(sampler.begin(logits, wanted.rows, std::ssize(wanted.rows)).ok());
    const auto choices = sampler.finish();
    ASSERT_TRUE(choices.ok()) << choices.error().message;
    expect_chosen_by_the_sampler(*choices, wanted, logits);
  }
  EXPECT_EQ(ops.downloaded_bytes(), 2 * 8 * (sizeof(std::int32_t) + sizeof(RowScores)))
      << "no logits";
}

TEST(RowSampler, a_history_may_end_with_a_token_that_only_the_device_knows) {
  const HostTensor logits = random_logits(2, 9);
  MixedRows first(1);
  std::vector<SamplingParams> sampling(2);
  sampling[0].repetition_penalty = 30.0F;
  sampling[1].frequency_penalty = 2.0F;
  sampling[1].logit_bias = {{4, -2.5F}};
  DelayedOps ops({.scores = false, .edits = true});
  RowSampler sampler = make_sampler(ops, 2);
  // The likeliest token of the first row is penalised if it was chosen before.
  first.sampling[0].temperature = 0.0F;
  sampling[0].temperature = 0.0F;
  ASSERT_TRUE(sampler.begin(logits->rows(0, 1), first.rows, std::ssize(first.rows)).ok());
  const std::vector<std::int32_t> ahead = {1, 2, 3, -1};
  std::vector<LogitsRow> rows;
  for (const SamplingParams& params : sampling) {
    rows.push_back({.sampling = &params,
                    .position = 3,
                    .sample = true,
                    .scored = -1,
                    .history = {std::span(ahead).first(2), std::span(ahead).last(2)}});
    EXPECT_TRUE(sampler.on_device(rows.back()));
  }
  ASSERT_TRUE(sampler.begin(logits, rows, std::ssize(rows)).ok());
  const auto chosen = sampler.finish();
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  MixedRows known(0);
  known.tokens = {1, 2, 3, chosen->front().id};
  for (LogitsRow row : rows) {
    row.history = {std::span(known.tokens).first(2), std::span(known.tokens).last(2)};
    known.rows.push_back(row);
  }
  const auto choices = sampler.finish();
  ASSERT_TRUE(choices.ok()) << choices.error().message;
  expect_chosen_by_the_sampler(*choices, known, logits);
  EXPECT_NE(choices->front().id, chosen->front().id);
}

TEST(RowSampler, rows_that_are_not_finite_fail_wherever_they_are_chosen) {
  const HostTensor logits = random_logits(5, 3);
  for (std::int64_t row = 0; row < 5; ++row) {
    logits->rows(row, 1).as<float>()[row * 7] = std::numeric_limits<float>::quiet_NaN();
  }
  const MixedRows wanted(5);
  for (const bool scores : {false, true}) {
    DelayedOps ops({.scores = scores, .edits = scores});
    RowSampler sampler = make_sampler(ops, 5);
    ASSERT_TRUE(sampler.begin(logits, wanted.rows, std::ssize(wanted.rows)).ok());
    const auto choices = sampler.finish();
    ASSERT_TRUE(choices.ok()) << choices.error().message;
    for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE((*choices)[i].failed) << "row " << i;
  }
}

TEST(RowSampler, a_choice_is_finished_without_waiting_for_the_next_one) {
  const HostTensor first_logits = random_logits(7, 4), second_logits = random_logits(9, 5);
  const MixedRows first(7), second(9);
  DelayedOps ops;
  RowSampler sampler = make_sampler(ops, 9);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(sampler.begin(first_logits, first.rows, std::ssize(first.rows)).ok());
    const std::size_t of_first = ops.enqueued();
    ASSERT_TRUE(sampler.begin(second_logits, second.rows, std::ssize(second.rows)).ok());
    const std::size_t of_both = ops.enqueued();
    EXPECT_EQ(sampler.begun(), 2U);
    EXPECT_FALSE(sampler.begin(first_logits, first.rows, std::ssize(first.rows)).ok()) << "a third";
    auto choices = sampler.finish();
    ASSERT_TRUE(choices.ok()) << choices.error().message;
    EXPECT_EQ(ops.enqueued(), of_both - of_first) << "the second's are still to do";
    expect_chosen_by_the_sampler(*choices, first, first_logits);
    choices = sampler.finish();
    ASSERT_TRUE(choices.ok()) << choices.error().message;
    expect_chosen_by_the_sampler(*choices, second, second_logits);
    EXPECT_FALSE(sampler.finish().ok()) << "none is left";
  }
}

TEST(RowSampler, logits_of_another_shape_are_refused) {
  const HostTensor logits = random_logits(3, 6);
  const MixedRows wanted(4);
  DelayedOps ops;
  RowSampler sampler = make_sampler(ops, 4);
  const auto begun = sampler.begin(logits, wanted.rows, std::ssize(wanted.rows));
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(sampler.begun(), 0U);
}

TEST(RowSampler, ranks_choose_from_their_shares_of_the_rows_and_all_know_every_choice) {
  constexpr int ranks = 3;
  constexpr std::int64_t padded = 13;  // 5, 5 and 3 rows, of which the last two are padding
  const HostTensor logits = random_logits(padded, 7);
  const MixedRows wanted(11);
  for (const bool scores : {false, true}) {
    auto region = SharedMemory::create(shm_collectives_bytes(ranks, 1 << 16));
    ASSERT_TRUE(region.ok()) << region.error().message;
    std::vector<std::future<std::size_t>> running;
    for (int rank = 0; rank < ranks; ++rank) {
      running.push_back(std::async(std::launch::async, [&, rank] {
        auto mapped = SharedMemory::map(std::move(*region->duplicate_fd()));
        auto group = ShmCollectives::attach(*std::move(mapped), rank, ranks);
        EXPECT_TRUE(group.ok()) << group.error().message;
        (*group)->set_timeout(std::chrono::seconds(20));
        DelayedOps ops({.scores = scores, .edits = scores, .at_once = true});
        RowSampler sampler = make_sampler(ops, padded, group->get());
        const Slice own = ceil_slice(padded, {rank, ranks});
        const auto begun = sampler.begin(logits->rows(own.begin, own.count), wanted.rows, padded);
        EXPECT_TRUE(begun.ok()) << begun.error().message;
        const auto choices = sampler.finish();
        EXPECT_TRUE(choices.ok()) << choices.error().message;
        if (choices.ok()) expect_chosen_by_the_sampler(*choices, wanted, logits);
        EXPECT_TRUE((*group)->barrier().ok());
        return ops.downloaded_bytes();
      }));
    }
    std::size_t bytes = 0;
    for (auto& rank : running) bytes += rank.get();
    if (scores) continue;
    const std::size_t ids = 11 * sizeof(std::int32_t), row = vocab * sizeof(float);
    EXPECT_EQ(bytes, ranks * ids + 8 * row) << "eight of eleven rows are the host's, once";
  }
}

TEST(RowSampler, context_ranks_take_the_choices_of_the_first) {
  constexpr int ranks = 2;
  const MixedRows wanted(11);
  for (const bool scores : {false, true}) {
    auto region = SharedMemory::create(shm_collectives_bytes(ranks, 1 << 16));
    ASSERT_TRUE(region.ok()) << region.error().message;
    std::vector<std::future<void>> running;
    for (int rank = 0; rank < ranks; ++rank) {
      running.push_back(std::async(std::launch::async, [&, rank] {
        auto mapped = SharedMemory::map(std::move(*region->duplicate_fd()));
        auto group = ShmCollectives::attach(*std::move(mapped), rank, ranks);
        ASSERT_TRUE(group.ok()) << group.error().message;
        (*group)->set_timeout(std::chrono::seconds(20));
        DelayedOps ops({.scores = scores, .edits = scores, .at_once = true});
        RowSampler sampler = make_sampler(ops, 11, {}, group->get());
        const HostTensor logits = random_logits(11, 7 + static_cast<unsigned>(rank));
        const auto begun = sampler.begin(logits, wanted.rows, 11);
        ASSERT_TRUE(begun.ok()) << begun.error().message;
        const auto choices = sampler.finish();
        ASSERT_TRUE(choices.ok()) << choices.error().message;
        expect_chosen_by_the_sampler(*choices, wanted, random_logits(11, 7));
        EXPECT_TRUE((*group)->barrier().ok());
      }));
    }
  }
}

}  // namespace
}  // namespace troupe
