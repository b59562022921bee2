#include "launcher/job/job_plan.hpp"

#include <algorithm>
#include <thread>

#include "actors/executor/request_intake.hpp"
#include "launcher/progress/progress_view.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/model/model.hpp"
#include "parallel/mesh/mesh.hpp"

namespace troupe {
namespace {

constexpr std::int64_t cpu_batched_tokens = 2048;

/// The error with the YAML key that the person can change in front.
Error about_key(std::string_view key, Error error) {
  error.message = fmt::format("{}: {}", key, error.message);
  return error;
}

Result<std::int64_t> context_length(const Config& config, const ModelConfig& model) {
  const std::int64_t longest = model.max_position_embeddings;
  const std::int64_t asked = config.engine.max_model_len.value_or(longest);
  if (asked > longest) {
    return fail(ErrorCode::invalid_argument,
                "engine.max_model_len is {}, but {} was made for {} tokens at the most "
                "(max_position_embeddings)",
                asked, config.model.path, longest);
  }
  return asked;
}

}  // namespace

Result<JobPlan> plan_job(Config config) {
  JobPlan plan;
  plan.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  auto model = ModelConfig::load(config.model.path);
  if (!model.ok()) return about_key("model.path", std::move(model).error());
  plan.model = *std::move(model);
  auto checkpoint = Checkpoint::open(config.model.path);
  if (!checkpoint.ok()) return about_key("model.path", std::move(checkpoint).error());
  const int tensor = static_cast<int>(config.parallel.tensor_parallel_size);
  auto checked = check_model(plan.model, *checkpoint, MeshShape{.tensor = tensor});
  if (!checked.ok())
    return about_key(fmt::format("parallel sizes and {}", config.model.path),
                     std::move(checked).error());
  const int data = static_cast<int>(config.parallel.data_parallel_size);
  const int world = data * tensor;
  plan.devices = static_cast<int>(config.cluster.devices_per_node.value_or(world));
  if (world > plan.devices) {
    return fail(ErrorCode::invalid_argument,
                "{} replicas of {} workers are {} workers, but the node takes {} "
                "(cluster.devices_per_node)",
                data, tensor, world, plan.devices);
  }

  EngineSpec& engine = plan.engine;
  engine.model_path = config.model.path;
  engine.data_parallel_size = data;
  engine.tensor_parallel_size = tensor;
  engine.sequence_parallel = config.parallel.sequence_parallel;
  engine.threads_per_worker = static_cast<std::int32_t>(
      config.engine.threads_per_worker.value_or(std::max(1, plan.cores / world)));
  engine.bf16 = config.model.dtype == "bfloat16";
  TROUPE_TRY(engine.max_model_len, context_length(config, plan.model));
  engine.max_num_batched_tokens =
      static_cast<std::int32_t>(config.engine.max_num_batched_tokens.value_or(cpu_batched_tokens));
  engine.max_num_seqs = static_cast<std::int32_t>(config.engine.max_num_seqs);
  if (engine.max_num_batched_tokens < engine.max_num_seqs) {
    return fail(ErrorCode::invalid_argument,
                "engine.max_num_batched_tokens is {}, less than engine.max_num_seqs {}: each "
                "running request needs a token of every step",
                engine.max_num_batched_tokens, engine.max_num_seqs);
  }
  engine.block_size = static_cast<std::int32_t>(config.engine.block_size);
  engine.kv_cache_blocks = config.engine.kv_cache_blocks.value_or(0);
  engine.chunked_prefill = config.engine.enable_chunked_prefill;
  if (!engine.chunked_prefill && engine.max_num_batched_tokens < engine.max_model_len) {
    return fail(
        ErrorCode::invalid_argument,
        "engine.enable_chunked_prefill is false, so engine.max_num_batched_tokens ({}) must "
        "hold a whole prompt of engine.max_model_len ({}) tokens",
        engine.max_num_batched_tokens, engine.max_model_len);
  }
  if (world * engine.threads_per_worker > plan.cores) {
    plan.warnings.push_back(
        fmt::format("{} workers of {} threads on {} cores will wait for each other", world,
                    engine.threads_per_worker, plan.cores));
  }
  // Broken tokenizers and templates must not wait for the executor to be found.
  TROUPE_TRY(const auto intake, RequestIntake::load(config.model.path, engine.max_model_len));
  const auto& penalty = intake.defaults().repetition_penalty;
  if (penalty.value_or(1.0) != 1.0) {
    plan.warnings.push_back(fmt::format(
        "{}/generation_config.json asks for repetition_penalty {}, which this version does not "
        "apply",
        config.model.path, *penalty));
  }
  plan.config = std::move(config);
  return plan;
}

std::string describe(const JobPlan& plan) {
  const auto mesh = Mesh::create(
      {.data = plan.engine.data_parallel_size, .tensor = plan.engine.tensor_parallel_size});
  std::string text = to_yaml(plan.config);
  text += fmt::format(
      "\n{} ({}), {} layers, {} tokens of context, {} a step\nworkers: {}, threads each: {}, "
      "cores: {}\n",
      plan.config.model.path, to_string(plan.model.architecture), plan.model.layers,
      plan.engine.max_model_len, plan.engine.max_num_batched_tokens, mesh->world_size(),
      plan.engine.threads_per_worker, plan.cores);
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  text += "\nrank  node   device  place\n";
  for (int rank = 0; rank < mesh->world_size(); ++rank) {
    text += fmt::format("{:<4}  {:<5}  {:<6}  {}\n", rank, "node0", rank, mesh->describe(rank));
  }
  return text;
}

}  // namespace troupe
