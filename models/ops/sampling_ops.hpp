#pragma once

#include <cstdint>
#include <span>

#include "models/ops/op_checks.hpp"
#include "parallel/device/tensor.hpp"

namespace troupe {

/// The edits that LogitsEditor of models/sampler makes to a row before sampling. Its token ids are
/// lists in one array: consecutive ones from `first` on, and others from `history` on.
struct RowEdits {
  std::int32_t first = 0;
  std::int32_t allowed = 0;  ///< number of the only allowed tokens; 0: all are
  std::int32_t masked = 0;
  std::int32_t biased = 0;  ///< pairs of a token and the bits of its bias, each token once
  std::int32_t history = 0;
  std::int32_t prompt = 0;  ///< number of penalised prompt tokens
  std::int32_t output = 0;
  float repetition_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;

  std::int64_t tokens() const {
    return std::int64_t{allowed} + masked + 2 * std::int64_t{biased} + prompt + output;
  }
};

/// A row of logits whose token the device samples by the SamplingParams of models/sampler.
struct SampledRow {
  std::int32_t row = 0;  ///< index in the logits and in the ids
  std::uint32_t choice = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  ///< of the new token
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  RowEdits edits = {};
};

/// A row of logits for which log-probabilities of one token and of the best ones are requested.
struct ScoredRow {
  std::int32_t row = 0;   ///< index in the logits, ids and scores
  std::int32_t id = -1;   ///< the token; -1: the row's entry in `ids`
  std::int32_t best = 0;  ///< number of best tokens
};

/// The numbers from which models/sampler computes log-probabilities.
struct RowScores {
  static constexpr std::int32_t max_best = 32;

  std::uint64_t sum = 0;  ///< of the weights at temperature 1, in units of 2^-44
  float max = 0.0F;       ///< the largest logit
  float logit = 0.0F;     ///< the token's
  std::int32_t id = -1;
  std::int32_t rank = 0;  ///< 1 + the number of likelier tokens; 0: a logit is not finite
  std::int32_t best_ids[max_best] = {};  ///< best first, the lower id of equals first
  float best_logits[max_best] = {};
};

/// Tokens and log-probabilities chosen on the device. Operations only enqueue, as ops.hpp says.
class SamplingOps {
 public:
  virtual ~SamplingOps() = default;

  /// Resolves ids that were unknown when they were uploaded: ids[i] < 0 becomes chosen[-1 -
  /// ids[i]], or 0 if that is negative too. ids [tokens] i32, chosen [n] i32.
  void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) {
    if constexpr (op_checks::enabled) op_checks::resolve_sampled_ids(chosen, ids);
    do_resolve_sampled_ids(chosen, ids);
  }

  /// True if sample() supports such a row of `vocab` logits; otherwise the host must sample.
  virtual bool can_sample(const SampledRow& row, std::int64_t vocab) const = 0;

  /// ids[rows[i].row] = the token that sample() of models/sampler chooses from that row of logits;
  /// -1 if a logit is not finite or no token is left. Other ids are left unchanged. Each row at
  /// most once, all supported by can_sample; rows without edits should come first. logits [n,
  /// vocab] f32; edited [tokens] i32, the rows' edits on the device, empty without any; ids [n]
  /// i32.
  void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
              const Tensor& ids) {
    if constexpr (op_checks::enabled) op_checks::sample(logits, rows, edited, ids);
    do_sample(logits, rows, edited, ids);
  }

  /// True if score() supports such a row of `vocab` logits.
  virtual bool can_score(const ScoredRow& row, std::int64_t vocab) const = 0;

  /// scores[rows[i].row] = the result of token_logprobs() of models/sampler for that row of logits,
  /// with min(best, vocab) best tokens. Others are left unchanged. Each row at most once, all
  /// supported by can_score. logits [n, vocab] f32; ids [n] i32; scores [n * sizeof(RowScores)] u8.
  void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
             const Tensor& scores) {
    if constexpr (op_checks::enabled) op_checks::score(logits, rows, ids, scores);
    do_score(logits, rows, ids, scores);
  }

 private:
  virtual void do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) = 0;
  virtual void do_sample(const Tensor& logits, std::span<const SampledRow> rows,
                         const Tensor& edited, const Tensor& ids) = 0;
  virtual void do_score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
                        const Tensor& scores) = 0;
};

}  // namespace troupe
