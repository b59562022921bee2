#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

#include "actors/worker/model_runner.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/config/model_config.hpp"
#include "models/families/family.hpp"
#include "models/model/model.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "runtime/base/result.hpp"
#include "tests/golden/support/golden_model.hpp"

namespace troupe {

/// A small model with experts on one rank, and its runner.
struct RunnerRank {
  static constexpr std::int64_t blocks = 24;

  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;

  static std::filesystem::path folder() { return golden::data_folder() / "qwen3moe-a"; }

  static Result<RunnerRank> make(std::unique_ptr<Ops> ops, std::int64_t max_head_rows = 20,
                                 const ParallelContext& parallel = {},
                                 std::int64_t max_positions = 64) {
    RunnerRank rank;
    rank.ops = std::move(ops);
    TROUPE_TRY(const ModelConfig config, load_model_config(folder()));
    TROUPE_TRY(const Checkpoint checkpoint, Checkpoint::open(folder()));
    const ModelLimits limits{
        .max_batch_tokens = 40, .max_head_rows = max_head_rows, .max_positions = max_positions};
    TROUPE_TRY(rank.model, load_model(config, checkpoint, *rank.ops, parallel, limits));
    TROUPE_CHECK(
        rank.model->allocate_kv_cache(ModelRunner::blocks_to_allocate(*rank.model, blocks)));
    TROUPE_TRY(ModelRunner runner, ModelRunner::create(*rank.model, *rank.ops, parallel, blocks));
    rank.runner = std::make_unique<ModelRunner>(std::move(runner));
    return rank;
  }
  static Result<RunnerRank> make_on_cpu(std::int64_t max_head_rows = 20) {
    TROUPE_TRY(auto ops, make_cpu_ops({}));
    return make(std::move(ops), max_head_rows);
  }

  Result<StepResult> take(const StepPlan& plan) const {
    TROUPE_CHECK(runner->begin(plan));
    return runner->finish();
  }
};

}  // namespace troupe
