#include "actors/worker/startup/warm_up.hpp"

#include <algorithm>
#include <utility>

#include "actors/worker/pass.hpp"
#include "models/layers/attention/cache_spec.hpp"

namespace troupe {
namespace {

constexpr std::int64_t prompt_tokens = 512;

/// Makes consecutive plans, each of sequences 0.. of equal lengths.
class Steps {
 public:
  Steps(ModelRunner& runner, const Model& model)
      : runner_(runner),
        vocab_(model.config().vocab_size),
        block_size_(model.limits().block_size),
        groups_(static_cast<std::int64_t>(cache_groups(model.config()).size())) {}

  /// Replaces all sequences by `sequences` new ones of `tokens` tokens, sampled if `sample`.
  Result<void> start(std::int64_t sequences, std::int64_t tokens, bool sample = true) {
    const std::int64_t blocks = (tokens + block_size_ - 1) / block_size_;
    StepPlan plan = next_plan();
    for (std::int64_t i = 0; i < sequences; ++i) {
      NewSequence sequence;
      sequence.id = static_cast<SequenceId>(i);
      for (std::int64_t t = 0; t < tokens; ++t) {
        sequence.tokens.push_back(static_cast<std::int32_t>((i * 7919 + t * 31) % vocab_));
      }
      sequence.prompt_tokens = static_cast<std::int32_t>(tokens);
      sequence.sampling.ignore_eos = true;
      plan.started.push_back(std::move(sequence));
      SequenceStep step;
      step.id = static_cast<SequenceId>(i);
      step.tokens = static_cast<std::int32_t>(tokens);
      step.sample = sample;
      for (std::int64_t b = 0; b < groups_ * blocks; ++b) {
        step.new_blocks.push_back(static_cast<std::int32_t>(i * blocks + b % blocks));
      }
      plan.steps.push_back(std::move(step));
    }
    known_ = {sequences, tokens};
    return take(plan);
  }

  /// Adds one token to each.
  Result<void> decode() {
    StepPlan plan = next_plan();
    plan.released.clear();
    for (std::int64_t i = 0; i < known_.sequences; ++i) {
      plan.steps.push_back({.id = static_cast<SequenceId>(i),
                            .first_position = static_cast<std::int32_t>(known_.tokens),
                            .tokens = 1,
                            .new_blocks = {},
                            .sample = true});
    }
    ++known_.tokens;
    return take(plan);
  }

  Result<void> release() {
    const StepPlan plan = next_plan();
    known_ = {};
    return take(plan);
  }

 private:
  /// Releases all known sequences.
  StepPlan next_plan() {
    StepPlan plan;
    plan.step = step_++;
    for (std::int64_t i = 0; i < known_.sequences; ++i) {
      plan.released.push_back(static_cast<SequenceId>(i));
    }
    return plan;
  }
  Result<void> take(const StepPlan& plan) {
    TROUPE_CHECK(runner_.begin(plan));
    TROUPE_TRY([[maybe_unused]] const StepResult unused, runner_.finish());
    return {};
  }

  struct Known {
    std::int64_t sequences = 0, tokens = 0;
  };

  ModelRunner& runner_;
  std::int64_t vocab_, block_size_, groups_;
  Known known_;
  std::uint64_t step_ = 0;
};

/// Stages run GEMMs of new sizes one after the other: while one tunes them, the stages after it
/// wait. So each stage first runs those of prompts by itself, halving the rows each time.
Result<void> measure_prompts(Steps& steps, ModelRunner& runner, const ModelLimits& limits,
                             std::int64_t tokens, std::int64_t kv_blocks) {
  const std::int64_t blocks = (tokens + limits.block_size - 1) / limits.block_size;
  const std::int64_t most = std::min(limits.max_batch_tokens / tokens, kv_blocks / blocks);
  runner.run_alone(true);
  for (std::int64_t sequences = most; sequences > 1; sequences /= 2) {
    TROUPE_CHECK(steps.start(sequences, tokens, false));
  }
  runner.run_alone(false);
  return {};
}

}  // namespace

Result<void> warm_up(ModelRunner& runner, const Model& model, std::int64_t kv_blocks) {
  const ModelLimits& limits = model.limits();
  Steps steps(runner, model);
  // A whole prompt is one step here, so that no token may be dropped within it.
  const std::int64_t whole = limits.kv_policy.next_drop(0, prompt_tokens);
  const std::int64_t prompt =
      std::min({prompt_tokens, limits.max_batch_tokens, limits.max_positions,
                kv_blocks * limits.block_size, whole});
  if (runner.is_in_pipeline()) {
    TROUPE_CHECK(measure_prompts(steps, runner, limits, prompt, kv_blocks));
  }
  TROUPE_CHECK(steps.start(1, prompt));
  const bool holds_two = limits.block_size > 1 && limits.max_positions > 1;
  const std::int64_t longest =
      holds_two ? std::min({limits.max_batch_tokens, limits.max_head_rows, kv_blocks}) : 0;
  for (std::int64_t rows = longest; rows > 0; --rows) {
    if (graph_rows(rows) != rows) continue;
    TROUPE_CHECK(steps.start(rows, 1));
    TROUPE_CHECK(steps.decode());
  }
  return steps.release();
}

}  // namespace troupe
