#include "actors/step/step_codec.hpp"

#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {

bool operator==(const NewSequence& a, const NewSequence& b) {
  return std::tie(a.id, a.tokens, a.prompt_tokens, a.sampling) ==
         std::tie(b.id, b.tokens, b.prompt_tokens, b.sampling);
}

bool operator==(const SequenceStep& a, const SequenceStep& b) {
  return std::tie(a.id, a.first_position, a.tokens, a.new_blocks, a.sample) ==
         std::tie(b.id, b.first_position, b.tokens, b.new_blocks, b.sample);
}

bool operator==(const SwapOut& a, const SwapOut& b) {
  return std::tie(a.id, a.host_blocks) == std::tie(b.id, b.host_blocks);
}

bool operator==(const SwapIn& a, const SwapIn& b) {
  return std::tie(a.id, a.host_blocks, a.blocks) == std::tie(b.id, b.host_blocks, b.blocks);
}

bool operator==(const StepPlan& a, const StepPlan& b) {
  const auto all = [](const StepPlan& p) {
    return std::tie(p.step, p.epoch, p.widened_layers, p.released, p.swapped_out, p.swapped_in,
                    p.started, p.steps);
  };
  return all(a) == all(b);
}

bool operator==(const SequenceResult& a, const SequenceResult& b) {
  const auto all = [](const SequenceResult& r) {
    return std::tie(r.id, r.tokens, r.logprobs, r.prompt_begin, r.prompt_logprobs, r.failed);
  };
  return all(a) == all(b);
}

bool operator==(const StepResult& a, const StepResult& b) {
  return std::tie(a.step, a.epoch, a.results, a.model_us, a.shared_positions) ==
         std::tie(b.step, b.epoch, b.results, b.model_us, b.shared_positions);
}

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const T& value) {
  StepEncoder encoder;
  const auto encoded = encoder.encode(value);
  EXPECT_TRUE(encoded.ok()) << encoded.error().message;
  return {encoded->begin(), encoded->end()};
}

StepPlan full_plan() {
  StepPlan plan;
  plan.step = std::numeric_limits<std::uint64_t>::max() - 1;
  plan.epoch = 3;
  plan.released = {4, 0, 4294967295U};
  NewSequence sequence;
  sequence.id = 7;
  sequence.tokens = {1, 2, 3, 4095, 2147483647};
  sequence.prompt_tokens = 4;
  sequence.sampling = {0.7F, 50, 0.9F, 0.05F, 0xfedcba9876543210U, 128, true, {5, 6}, 20, 1};
  sequence.sampling.choice = 3;
  sequence.sampling.min_tokens = 4;
  sequence.sampling.repetition_penalty = 1.3F;
  sequence.sampling.frequency_penalty = -0.5F;
  sequence.sampling.presence_penalty = 0.25F;
  sequence.sampling.logit_bias = {{4, -100.0F}, {9, 1.5F}};
  sequence.sampling.allowed_token_ids = {4, 9, 11};
  sequence.sampling.bad_words = {{4}, {9, 11, 4}};
  plan.started = {sequence, NewSequence{}};
  plan.widened_layers = {7, 0, 31};
  plan.swapped_out = {{5, {8, 1}}, {6, {0}}};
  plan.swapped_in = {{2, {4, 7}, {-1, 30, 31}}, {8, {9}, {40}}};
  plan.steps = {{7, 0, 5, {9, 3, 12}, true}, {1, 100, 1, {}, false}, {2, 31, 2, {8}, true}};
  return plan;
}

StepResult full_result() {
  StepResult result;
  result.step = 12345678901234;
  result.epoch = 9;
  result.model_us = 777;
  result.shared_positions = 5'000'000'000;
  const TokenLogprobs two{-0.5F, {10, 11}, {-0.5F, -1.25F}, 1};
  const TokenLogprobs none{-3.0F, {}, {}, 4096};
  result.results = {{7, {10}, {two}, 0, {}, false},
                    {1, {}, {}, 17, {none, two, none}, false},
                    {2, {1, 2, 3}, {none, two, two}, 0, {}, false},
                    {3, {}, {}, 0, {}, true}};
  return result;
}

TEST(StepCodec, brings_a_plan_back_whole) {
  const StepPlan plan = full_plan();
  const auto decoded = decode_plan(bytes_of(plan));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_TRUE(*decoded == plan);
}

TEST(StepCodec, brings_a_result_back_whole) {
  const StepResult result = full_result();
  const auto decoded = decode_result(bytes_of(result));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_TRUE(*decoded == result);
}

TEST(StepCodec, brings_empty_messages_back) {
  const auto plan = decode_plan(bytes_of(StepPlan{}));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(*plan == StepPlan{});
  const auto result = decode_result(bytes_of(StepResult{}));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(*result == StepResult{});
}

TEST(StepCodec, reads_a_message_at_any_alignment) {
  const StepPlan plan = full_plan();
  const Bytes bytes = bytes_of(plan);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes shifted(bytes.size() + shift);
    std::memcpy(shifted.data() + shift, bytes.data(), bytes.size());
    const auto decoded = decode_plan(std::span(shifted).subspan(shift));
    ASSERT_TRUE(decoded.ok()) << "shift " << shift << ": " << decoded.error().message;
    EXPECT_TRUE(*decoded == plan) << "shift " << shift;
  }
}

TEST(StepCodec, leaves_no_trace_of_a_large_message_in_the_next_small_one) {
  StepEncoder encoder;
  const Bytes small = bytes_of(full_plan());
  for (const std::size_t tokens : {100, 5000, 300000, 2000000}) {
    StepPlan large = full_plan();
    large.started[0].tokens.assign(tokens, 0x5a5a5a5a);
    const auto encoded = encoder.encode(large);
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    const auto decoded = decode_plan(*encoded);
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_TRUE(*decoded == large) << tokens << " tokens";
    const auto again = encoder.encode(full_plan());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(Bytes(again->begin(), again->end()), small) << "after " << tokens << " tokens";
  }
}

TEST(StepCodec, refuses_another_protocol_number_by_name) {
  StepPlan plan;
  plan.epoch = 0x11223344;
  Bytes bytes = bytes_of(plan);
  // The protocol is beside the epoch in the first word of the plan's data.
  bool found = false;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint32_t pair[2];
    std::memcpy(pair, bytes.data() + i, 8);
    if (pair[0] != step_protocol || pair[1] != plan.epoch) continue;
    pair[0] = 99;
    std::memcpy(bytes.data() + i, pair, 8);
    found = true;
  }
  ASSERT_TRUE(found);
  const auto decoded = decode_plan(bytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::unsupported);
  EXPECT_NE(decoded.error().message.find("99"), std::string::npos) << decoded.error().message;
}

TEST(StepCodec, refuses_alternatives_without_values) {
  StepResult result = full_result();
  result.results[0].logprobs[0].top_logprobs.pop_back();
  StepEncoder encoder;
  const auto encoded = encoder.encode(result);
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(encoded.error().code, ErrorCode::invalid_argument);
  const auto after = encoder.encode(full_result());
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(Bytes(after->begin(), after->end()), bytes_of(full_result()));
}

TEST(StepCodec, refuses_every_truncation_and_every_extension) {
  for (const Bytes& bytes : {bytes_of(full_plan()), bytes_of(full_result())}) {
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto plan = decode_plan(std::span(bytes).first(length));
      ASSERT_FALSE(plan.ok()) << "cut to " << length << " of " << bytes.size();
      const auto result = decode_result(std::span(bytes).first(length));
      ASSERT_FALSE(result.ok()) << "cut to " << length << " of " << bytes.size();
      EXPECT_EQ(result.error().code, ErrorCode::corrupt_data);
    }
    Bytes longer = bytes;
    longer.resize(bytes.size() + 8);
    EXPECT_FALSE(decode_plan(longer).ok());
    EXPECT_FALSE(decode_result(longer).ok());
  }
}

/// Sums up what a message claims to hold, so that no corruption can make a small message large.
std::size_t entries_of(const StepPlan& plan) {
  std::size_t sum = plan.released.size() + plan.started.size() + plan.steps.size();
  for (const auto& s : plan.started) {
    sum += s.tokens.size() + s.sampling.stop_token_ids.size() + s.sampling.logit_bias.size() +
           s.sampling.allowed_token_ids.size();
    for (const auto& word : s.sampling.bad_words) sum += 1 + word.size();
  }
  for (const auto& s : plan.swapped_out) sum += 1 + s.host_blocks.size();
  for (const auto& s : plan.swapped_in) sum += 1 + s.host_blocks.size() + s.blocks.size();
  for (const auto& s : plan.steps) sum += s.new_blocks.size();
  return sum;
}

std::size_t entries_of(const StepResult& result) {
  std::size_t sum = result.results.size();
  for (const auto& r : result.results) {
    sum += r.tokens.size();
    for (const auto* list : {&r.logprobs, &r.prompt_logprobs}) {
      for (const auto& entry : *list) sum += 1 + entry.top_ids.size();
    }
  }
  return sum;
}

template <class Decode>
void flip_bits(const Bytes& good, std::uint32_t seed, Decode decode) {
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 30000; ++round) {
    Bytes bytes = good;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    const auto decoded = decode(bytes);
    if (decoded.ok()) {
      // A bit is an entry of some list: the densest list holds eight times the bytes.
      ASSERT_LE(entries_of(*decoded), bytes.size() * 8) << "seed " << seed << " round " << round;
    } else {
      ++refused;
      const ErrorCode code = decoded.error().code;
      ASSERT_TRUE(code == ErrorCode::corrupt_data || code == ErrorCode::unsupported)
          << "seed " << seed << " round " << round << ": " << decoded.error().message;
    }
  }
  EXPECT_GT(refused, 1000) << "flipped bits of lengths and pointers must be noticed";
}

TEST(StepCodec, survives_flipped_bits) {
  flip_bits(bytes_of(full_plan()), 1, decode_plan);
  flip_bits(bytes_of(full_result()), 2, decode_result);
}

TEST(StepCodec, survives_random_bytes) {
  const std::uint32_t seed = 3;
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint64_t> words(1 + random() % 24);
    // Small numbers form segment tables and pointers more often than noise does.
    for (auto& word : words) {
      word = random() % 3 == 0 ? random() % 64
                               : (std::uint64_t{random()} << 32 | random()) >> (random() % 64);
    }
    const auto bytes = std::as_bytes(std::span(words));
    const auto plan = decode_plan(bytes);
    if (plan.ok()) {
      ASSERT_LE(entries_of(*plan), bytes.size() * 8) << "round " << round;
    }
    const auto result = decode_result(bytes);
    if (result.ok()) {
      ASSERT_LE(entries_of(*result), bytes.size() * 8) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace troupe
