#include "launcher/job/plan_engine.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "actors/worker/sampling/drafter.hpp"
#include "launcher/job/cluster_nodes.hpp"
#include "launcher/job/plan_kv_policy.hpp"
#include "launcher/job/topology.hpp"
#include "models/families/family.hpp"
#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/model/model.hpp"
#include "models/ops/attention_limits.hpp"
#include "models/ops/device/device.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

constexpr std::int64_t cpu_batched_tokens = 2048;
constexpr std::int64_t gpu_batched_tokens = 16384;
constexpr std::int64_t gpu_stage_batched_tokens = 8192;

Result<std::int64_t> context_length(const Config& config, const ModelConfig& model) {
  const std::int64_t longest = model.max_position_embeddings;
  const std::int64_t asked = config.engine.max_model_len.value_or(longest);
  const bool is_endless = config.kv_cache.policy == to_string(KvPolicy::Kind::streaming);
  if (asked > longest && !is_endless) {
    return fail(ErrorCode::invalid_argument,
                "engine.max_model_len is {}, but {} was made for {} tokens at the most "
                "(max_position_embeddings)",
                asked, config.model.path, longest);
  }
  return asked;
}

Result<void> check_speculative_model(const std::string& folder, const ModelConfig& model,
                                     std::int64_t max_model_len) {
  constexpr const char* key = "engine.speculative_model";
  if (folder == "none") {
    return fail(ErrorCode::invalid_argument,
                "engine.speculative_method is draft_model: {} must name its folder", key);
  }
  const auto draft = load_model_config(folder);
  if (!draft.ok()) return about_key(key, draft.error());
  auto fits = check_draft_model(folder, *draft, model, max_model_len);
  if (!fits.ok()) return about_key(key, std::move(fits).error());
  return {};
}

/// The device that the workers use; see plan_engine. Errors: GPUs are requested but missing.
Result<DeviceKind> device_kind(const Config& config, const std::optional<Gpus>& assumed,
                               bool computes_here) {
  if (config.cluster.device == "cpu") return DeviceKind::cpu;
  if (!computes_here) return config.cluster.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  if (assumed && assumed->count > 0) return DeviceKind::cuda;
  if (assumed && config.cluster.device == "auto") return DeviceKind::cpu;
  if (assumed) {
    return fail(ErrorCode::not_found, "cluster.device is cuda, but no GPU is assumed");
  }
  // The workers find out if this build runs on them.
  if (config.cluster.device == "cuda" && gpu_part_is_here() && listed_gpus()) {
    return DeviceKind::cuda;
  }
  const Result<int> gpus = count_gpus();
  if (gpus.ok() && *gpus > 0) return DeviceKind::cuda;
  if (config.cluster.device == "auto") return DeviceKind::cpu;
  return fail(ErrorCode::not_found, "cluster.device is cuda, but {}",
              gpus.ok() ? "this machine has no GPU that this build runs on" : gpus.error().message);
}

/// Refuses more workers than GPUs.
Result<void> check_gpu_job(const Config& config, const Mesh& mesh,
                           const std::optional<Gpus>& assumed) {
  int gpus = 0;
  if (assumed) {
    gpus = assumed->count;
  } else if (const auto listed = listed_gpus(); listed && config.cluster.device == "cuda") {
    gpus = *listed;
  } else {
    TROUPE_TRY(gpus, count_gpus());
  }
  if (mesh.world_size() <= gpus) return {};
  return fail(ErrorCode::invalid_argument,
              "the parallel sizes make {} workers, which need a GPU each, and {} {}",
              mesh.world_size(), assumed ? "the assumed machine has" : "this machine has", gpus);
}

/// The most tokens of a step. Errors: more than the device's attention takes, or fewer than running
/// requests need.
Result<std::int32_t> step_tokens(const Config& config, const ModelConfig& model,
                                 const EngineSpec& engine) {
  const bool on_gpu = engine.device == DeviceKind::cuda;
  const auto& given = config.engine.max_num_batched_tokens;
  std::int64_t tokens =
      given.value_or(!on_gpu                             ? cpu_batched_tokens
                     : engine.pipeline_parallel_size > 1 ? gpu_stage_batched_tokens
                                                         : gpu_batched_tokens);
  if (on_gpu && !engine.deterministic) {
    TROUPE_TRY(const AttentionShape shape,
               attention_shape(model, 0, {0, engine.tensor_parallel_size}));
    const auto most = max_gpu_pass_tokens(shape, engine.dtype, engine.max_num_seqs);
    if (most && tokens > *most && given) {
      return fail(ErrorCode::invalid_argument,
                  "engine.max_num_batched_tokens is {}, but latent attention of {} heads on a GPU "
                  "takes at most {} tokens a step: lower it, leave it at auto, or raise "
                  "parallel.tensor_parallel_size",
                  tokens, shape.heads, *most);
    }
    tokens = std::min(tokens, most.value_or(tokens));
  }
  if (tokens < engine.max_num_seqs) {
    return fail(ErrorCode::invalid_argument,
                "engine.max_num_batched_tokens is {}, less than engine.max_num_seqs {}: each "
                "running request needs a token of every step",
                tokens, engine.max_num_seqs);
  }
  return static_cast<std::int32_t>(tokens);
}

/// How matrices are held. Errors: an encoding with what does not compute with it.
Result<WeightEncoding> weight_encoding(const Config& config, const EngineSpec& engine) {
  const std::string& asked = config.model.quantization;
  if (asked == "none") return WeightEncoding::plain;
  if (asked == "w8a8" && engine.device == DeviceKind::cpu) return WeightEncoding::w8a8;
  if (engine.deterministic) {
    return fail(ErrorCode::invalid_argument,
                "model.quantization: {} has no kernels whose bits do not depend on the batch: set "
                "engine.deterministic back to auto, or model.quantization to none",
                asked);
  }
  if (engine.device == DeviceKind::cuda && engine.dtype != DType::bf16) {
    return fail(ErrorCode::invalid_argument,
                "model.quantization: {} computes with bfloat16 between its products: set "
                "model.dtype: bfloat16",
                asked);
  }
  if (asked == "fp8") return WeightEncoding::fp8;
  if (asked == "w8a8") return WeightEncoding::w8a8;
  return asked == "int8" ? WeightEncoding::int8 : WeightEncoding::int4;
}

/// The bound of activations; infinity without a fallback. Errors: a fallback from what is not done
/// here, or to what there is not.
Result<float> max_activation(const Config& config, const EngineSpec& engine) {
  if (config.precision.fallback == "none") return std::numeric_limits<float>::infinity();
  const bool on_gpu = engine.device == DeviceKind::cuda;
  const bool rounds =
      engine.encoding == WeightEncoding::w8a8 || (on_gpu && engine.encoding == WeightEncoding::fp8);
  if (config.engine.deterministic.value_or(false)) {
    return fail(ErrorCode::invalid_argument,
                "precision.fallback: the step in which a layer falls back depends on timing: set "
                "engine.deterministic back to auto, or precision.fallback to none");
  }
  if (!rounds) {
    return fail(ErrorCode::invalid_argument,
                "precision.fallback: with model.quantization: {} no layer rounds activations to 8 "
                "bits on {}: set model.quantization: {}, or precision.fallback to none",
                config.model.quantization, on_gpu ? "GPUs" : "CPUs",
                on_gpu ? "fp8 or w8a8" : "w8a8");
  }
  return static_cast<float>(config.precision.max_activation);
}

}  // namespace

Error about_key(std::string_view key, Error error) {
  error.message = fmt::format("{}: {}", key, error.message);
  return error;
}

LoadFormat load_format(const Config& config) {
  return config.model.load_format == "dummy" ? LoadFormat::dummy : LoadFormat::safetensors;
}

Result<EngineSpec> plan_engine(const Config& config, const ModelConfig& model, const Mesh& mesh,
                               int cores, const std::optional<Gpus>& assumed, bool computes_here) {
  EngineSpec engine;
  engine.model_path = config.model.path;
  engine.load_format = load_format(config);
  engine.data_parallel_size = mesh.shape().data;
  engine.pipeline_parallel_size = mesh.shape().pipeline;
  engine.context_parallel_size = mesh.shape().context;
  engine.tensor_parallel_size = mesh.shape().tensor;
  engine.expert_parallel_size = mesh.expert_parallel_size();
  engine.sequence_parallel = config.parallel.sequence_parallel;
  engine.data_parallel_attention = mesh.data_parallel_attention();
  const bool by_tcp = config.parallel.collectives == "network";
  engine.collectives = by_tcp ? "network" : "shm";
  engine.threads_per_worker = static_cast<std::int32_t>(config.engine.threads_per_worker.value_or(
      std::max(1, cores / devices_per_node(config, mesh.world_size()))));
  TROUPE_TRY(engine.device, device_kind(config, assumed, computes_here));
  const bool on_gpu = engine.device == DeviceKind::cuda;
  if (!on_gpu && config.parallel.collectives == "nccl") {
    return fail(
        ErrorCode::invalid_argument,
        "parallel.collectives is nccl, which is for GPUs, but the CPU computes: leave it at "
        "auto, or set cluster.device: cuda");
  }
  if (on_gpu && computes_here) TROUPE_CHECK(check_gpu_job(config, mesh, assumed));
  engine.device_memory_utilization = config.engine.gpu_memory_utilization;
  const bool is_narrow = config.model.dtype == "bfloat16" ||
                         (config.model.dtype == "auto" && on_gpu && model.dtype != DType::f32);
  engine.dtype = is_narrow ? DType::bf16 : DType::f32;
  engine.deterministic = on_gpu && config.engine.deterministic.value_or(false);
  if (engine.deterministic) TROUPE_CHECK(check_deterministic_gpus(mesh, model, engine.dtype));
  TROUPE_TRY(engine.encoding, weight_encoding(config, engine));
  engine.quantize_head = config.model.quantize_lm_head;
  TROUPE_TRY(engine.max_activation, max_activation(config, engine));
  for (const DType codes : {DType::i8, DType::f8_e4m3, DType::i4x2}) {
    if (config.kv_cache.dtype == to_string(codes)) engine.kv_codes = codes;
  }
  TROUPE_TRY(engine.kv_residuals, plan_kv_residuals(config, model, engine));
  TROUPE_TRY(engine.kv_policy, plan_kv_policy(config, model, engine));
  TROUPE_TRY(engine.max_model_len, context_length(config, model));
  engine.max_num_seqs = static_cast<std::int32_t>(config.engine.max_num_seqs);
  TROUPE_TRY(engine.max_num_batched_tokens, step_tokens(config, model, engine));
  engine.block_size = static_cast<std::int32_t>(config.engine.block_size);
  engine.kv_cache_blocks = config.engine.kv_cache_blocks.value_or(0);
  if (const auto& gib = config.engine.swap_space) {
    engine.swap_bytes = static_cast<std::uint64_t>(*gib * static_cast<double>(1 << 30));
  }
  engine.cache_groups = static_cast<std::int32_t>(cache_groups(model).size());
  engine.chunked_prefill = config.engine.enable_chunked_prefill;
  engine.prefix_caching = config.engine.enable_prefix_caching;
  engine.cascade_attention = config.engine.cascade_attention;
  engine.async_scheduling = config.engine.async_scheduling;
  engine.scheduling_policy =
      scheduling_policy(config.engine.scheduling_policy).value_or(SchedulingPolicy::fcfs);
  if (config.engine.speculative_method == "ngram") {
    engine.speculation.method = SpeculationConfig::Method::prompt_lookup;
  }
  if (config.engine.speculative_method == "draft_model") {
    TROUPE_CHECK(
        check_speculative_model(config.engine.speculative_model, model, engine.max_model_len));
    engine.speculation.method = SpeculationConfig::Method::draft_model;
    engine.draft_model_path = config.engine.speculative_model;
  }
  engine.speculation.tokens = static_cast<std::int32_t>(config.engine.num_speculative_tokens);
  engine.speculation.longest_match = static_cast<std::int32_t>(config.engine.prompt_lookup_max);
  engine.restart = {.max = static_cast<std::int32_t>(config.restart.max),
                    .per_minutes = static_cast<std::int32_t>(config.restart.per_minutes),
                    .wait_seconds = static_cast<std::int32_t>(config.restart.wait_seconds)};
  engine.elastic = config.cluster.elastic;
  if (engine.elastic && engine.restart.max == 0) {
    return fail(ErrorCode::invalid_argument,
                "cluster.elastic: a job that may drop replicas must be able to recover: set "
                "restart.max, say to 10");
  }
  if (!engine.chunked_prefill && engine.max_num_batched_tokens < engine.max_model_len) {
    return fail(
        ErrorCode::invalid_argument,
        "engine.enable_chunked_prefill is false, so engine.max_num_batched_tokens ({}) must "
        "hold a whole prompt of engine.max_model_len ({}) tokens",
        engine.max_num_batched_tokens, engine.max_model_len);
  }
  return engine;
}

}  // namespace troupe
