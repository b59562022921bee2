#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "actors/scheduler/scheduler.hpp"
#include "actors/worker/model_runner.hpp"
#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe::golden {

// Small policies, and a model with its scheduler that runs under one.

inline constexpr KvPolicy full;
inline constexpr KvPolicy streaming{
    .kind = KvPolicy::Kind::streaming, .capacity = 37, .first_tokens = 4, .drop_tokens = 5};
inline constexpr KvPolicy snapkv{
    .kind = KvPolicy::Kind::snapkv, .capacity = 24, .last_tokens = 8, .pooling_tokens = 5};
inline constexpr KvPolicy h2o{
    .kind = KvPolicy::Kind::h2o, .capacity = 26, .last_tokens = 10, .drop_tokens = 3};

struct EngineOptions {
  std::int32_t blocks = 64;
  std::int32_t step_tokens = 64;
  DType dtype = DType::f32;
  std::optional<DType> kv_codes = {};  ///< of the KV cache, in place of dtype
  bool prefix_caching = false;
  std::int32_t swap_blocks = 0;
  std::int32_t threads = 1;
  bool scores_prompts = true;
  int restart_after = 0;  ///< steps, after which all caches are lost; 0: never
};

/// A model with its scheduler, as in a job.
struct Engine {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<Scheduler> scheduler;
  EngineOptions options;

  /// Loses the caches of all sequences, as when a worker dies.
  Result<void> restart() {
    scheduler->restart(1);
    TROUPE_TRY(ModelRunner again, ModelRunner::create(*model, *ops, {}, options.blocks));
    if (options.swap_blocks > 0) TROUPE_CHECK(again.allow_swaps(options.swap_blocks));
    runner = std::make_unique<ModelRunner>(std::move(again));
    return {};
  }
};

inline Result<Engine> start(const std::filesystem::path& folder, const KvPolicy& policy,
                            const EngineOptions& options = {}) {
  Engine engine;
  engine.options = options;
  const ModelLimits limits{.max_batch_tokens = options.step_tokens,
                           .max_head_rows = options.step_tokens,
                           .max_positions = 1024,
                           .compute = options.dtype,
                           .kv_dtype = options.kv_codes.value_or(options.dtype),
                           .kv_policy = policy};
  if (options.threads == 1) {
    TROUPE_TRY(engine.ops, make_golden_ops(options.dtype));
  } else {
    TROUPE_TRY(engine.ops, make_cpu_ops({.threads = options.threads, .dtype = options.dtype}));
  }
  TROUPE_TRY(const ModelConfig config, load_model_config(folder));
  TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  TROUPE_TRY(engine.model, load_model(config, checkpoint, *engine.ops, {}, limits));
  TROUPE_CHECK(engine.model->allocate_kv_cache(
      ModelRunner::blocks_to_allocate(*engine.model, options.blocks)));
  TROUPE_TRY(ModelRunner runner,
             ModelRunner::create(*engine.model, *engine.ops, {}, options.blocks));
  if (options.swap_blocks > 0) TROUPE_CHECK(runner.allow_swaps(options.swap_blocks));
  engine.runner = std::make_unique<ModelRunner>(std::move(runner));
  SchedulerConfig plans;
  plans.max_num_seqs = 16;
  plans.max_num_batched_tokens = options.step_tokens;
  plans.kv_cache_blocks = options.blocks;
  plans.max_model_len = 1024;
  plans.prefix_caching = options.prefix_caching;
  plans.swap_blocks = options.swap_blocks;
  plans.kv_policy = policy;
  TROUPE_TRY(Scheduler scheduler, Scheduler::make(plans));
  engine.scheduler = std::make_unique<Scheduler>(std::move(scheduler));
  return engine;
}

struct Answer {
  std::vector<std::int32_t> tokens;          ///< prompt and answer
  std::vector<TokenLogprobs> logprobs = {};  ///< of all but the first token
  std::int32_t most_blocks = 0;              ///< held at one time by all sequences
  std::int32_t last_blocks = 0;              ///< held in the last step
};

/// Answers the prompts together, with the log-probabilities of prompts and answers.
inline Result<std::vector<Answer>> answer(Engine& engine,
                                          const std::vector<std::vector<std::int32_t>>& prompts,
                                          std::int32_t max_tokens) {
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SequenceGroupSpec spec;
    spec.request = i;
    spec.prompt = prompts[i];
    spec.sampling.temperature = 0.0F;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.logprobs = 3;
    if (engine.options.scores_prompts) spec.sampling.prompt_logprobs = 3;
    TROUPE_CHECK(engine.scheduler->add(std::move(spec)));
    answers.push_back({.tokens = prompts[i]});
  }
  int steps = 0;
  while (const auto plan = engine.scheduler->plan()) {
    TROUPE_CHECK(engine.scheduler->audit());
    TROUPE_CHECK(engine.runner->begin(*plan));
    TROUPE_TRY(StepResult result, engine.runner->finish());
    const BlockPool& pool = engine.scheduler->blocks();
    answers.front().last_blocks = pool.blocks() - pool.free_blocks();
    answers.front().most_blocks =
        std::max(answers.front().most_blocks, answers.front().last_blocks);
    TROUPE_TRY(const auto updates, engine.scheduler->apply(std::move(result)));
    for (const SequenceUpdate& update : updates) {
      Answer& one = answers[update.request];
      one.tokens.insert(one.tokens.end(), update.tokens.begin(), update.tokens.end());
      // The scores of a prompt that is computed anew come again.
      if (!update.prompt_logprobs.empty()) {
        one.logprobs.resize(static_cast<std::size_t>(update.prompt_begin) - 1);
      }
      one.logprobs.insert(one.logprobs.end(), update.prompt_logprobs.begin(),
                          update.prompt_logprobs.end());
      one.logprobs.insert(one.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    }
    if (++steps == engine.options.restart_after) TROUPE_CHECK(engine.restart());
  }
  return answers;
}

inline std::vector<std::int32_t> random_tokens(std::size_t count, std::int64_t vocab,
                                               unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens)
    token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
  return tokens;
}

}  // namespace troupe::golden
