#include "launcher/job/job_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "actors/driver/kv_budget.hpp"
#include "actors/driver/rank_placement.hpp"
#include "launcher/job/cluster_nodes.hpp"
#include "launcher/job/memory_check.hpp"
#include "launcher/job/mesh_table.hpp"
#include "launcher/job/plan_engine.hpp"
#include "launcher/job/plan_kv_policy.hpp"
#include "launcher/job/topology.hpp"
#include "launcher/progress/progress_view.hpp"
#include "models/checkpoint/checkpoint.hpp"
#include "models/config/quantization.hpp"
#include "models/families/family.hpp"
#include "models/json/json_file.hpp"
#include "models/layers/attention/attention_shape.hpp"
#include "models/layers/attention/cache_spec.hpp"
#include "models/layers/weights/weights.hpp"
#include "models/model/model.hpp"
#include "models/ops/attention_limits.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "models/ops/device/device.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/gpu_attention.hpp"
#include "runtime/base/format_bytes.hpp"
#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

/// The checkpoint's name when it was saved: `_name_or_path` of its config.json.
std::optional<std::string> recorded_name(const std::string& folder) {
  const auto json = read_json_object(std::filesystem::path(folder) / "config.json");
  if (!json.ok()) return std::nullopt;  // load_model_config has reported it
  const auto name = json->find("_name_or_path");
  if (name == json->end() || !name->is_string() || name->get_ref<const std::string&>().empty())
    return std::nullopt;
  return name->get<std::string>();
}

/// The footprint of every rank. Ranks at the same place in their replicas hold the same.
Result<std::vector<RankFootprint>> footprints(const ModelConfig& model,
                                              const Checkpoint& checkpoint, const Mesh& mesh,
                                              const EngineSpec& engine) {
  const DType dtype = engine.dtype;
  const bool on_gpu = engine.device == DeviceKind::cuda;
  const FootprintOptions options{.compute = dtype,
                                 .encoding = engine.encoding,
                                 .quantize_head = engine.quantize_head,
                                 .kv_dtype = engine.kv_dtype(),
                                 .kv_residuals = engine.kv_residuals,
                                 .max_positions = engine.max_model_len,
                                 .block_size = engine.block_size,
                                 .kv_policy = engine.kv_policy,
                                 .panel_rows = on_gpu ? 1 : cpu_panel_rows,
                                 .on_gpu = on_gpu,
                                 .gpu_codes = dtype == DType::bf16 && !engine.deterministic,
                                 .widens_codes = std::isfinite(engine.max_activation),
                                 .shares_tables = on_gpu};
  std::map<std::array<int, 5>, RankFootprint> known;
  std::vector<RankFootprint> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const MeshCoordinates at = mesh.coordinates(rank);
    const ExpertPlace place = mesh.expert_place(rank);
    const std::array key{at.stage, at.tensor, place.expert_rank, place.split_index,
                         mesh.dense_index(rank)};
    auto found = known.find(key);
    if (found == known.end()) {
      TROUPE_TRY(const auto footprint, rank_footprint(model, checkpoint, mesh, rank, options));
      found = known.emplace(key, footprint).first;
    }
    ranks.push_back(found->second);
  }
  return ranks;
}

/// Decides plan.kv_blocks and adds the problems of what does not fit.
void judge_memory(JobPlan& plan, const PlanOptions& options) {
  if (plan.engine.device == DeviceKind::cpu) {
    const bool is_here = !options.assumed_gpus && plan.computes_here;
    judge_host_memory(plan, is_here ? available_memory_bytes() : std::nullopt);
    return;
  }
  if (options.assumed_gpus) {
    plan.gpus = *options.assumed_gpus;
  } else if (plan.computes_here &&
             (options.compares_gpu_memory || plan.engine.kv_cache_blocks > 0)) {
    plan.gpus = find_gpus();
  }
  judge_gpu_memory(plan, plan.gpus.memory_bytes);
}

/// Adds warnings for users who set engine.swap_space.
void warn_of_swap_space(JobPlan& plan) {
  const std::uint64_t asked =
      plan.engine.swap_bytes.value_or(0) * static_cast<std::uint64_t>(plan.mesh.world_size());
  if (asked == 0) return;
  if (plan.engine.speculation.method == SpeculationConfig::Method::draft_model) {
    plan.warnings.push_back(
        "engine.swap_space has no effect beside a draft model: requests whose blocks others need "
        "are computed anew");
    return;
  }
  if (!plan.computes_here) return;  // other hosts' memory is not known yet
  const std::optional<std::uint64_t> available = available_memory_bytes();
  if (available && asked > *available) {
    plan.warnings.push_back(
        fmt::format("engine.swap_space is {} of host memory for all workers, but {} are free",
                    format_bytes(asked), format_bytes(*available)));
  }
}

/// Refuses a model whose attention the device cannot run, before anything is started.
Result<void> check_attention(const ModelConfig& model, const Mesh& mesh, const EngineSpec& engine) {
  TROUPE_TRY(const AttentionShape shape, attention_shape(model, 0, head_shard(model, mesh, 0)));
  const DType dtype = engine.kv_dtype();
  return engine.device == DeviceKind::cuda ? check_gpu_attention(shape, dtype)
                                           : check_cpu_attention(shape, engine.block_size, dtype);
}

/// Warns of what has been run on GPUs in one arrangement only.
void warn_of_context_ranks(JobPlan& plan) {
  if (plan.engine.device != DeviceKind::cuda || plan.mesh.shape().context == 1) return;
  plan.warnings.push_back(
      "parallel.context_parallel_size has been run on GPUs with 2 ranks that share the KV heads: "
      "compare answers of other sizes and models with those of size 1 before you rely on them");
}

/// Warns users who ask for a head in 8 bits where GPUs leave it as it is.
void warn_of_plain_head(JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  if (engine.device != DeviceKind::cuda || !engine.quantize_head.value_or(false)) return;
  const std::int64_t rows = ceil_slice(plan.model.vocab_size, {0, plan.mesh.dense_size()}).count;
  if (plan.model.tie_word_embeddings && engine.pipeline_parallel_size == 1) {
    plan.warnings.push_back(
        "model.quantize_lm_head has no effect: the head is tied to the embedding, whose memory it "
        "shares on GPUs");
  } else if (engine.encoding == WeightEncoding::fp8 && !fp8_fits(rows, plan.model.hidden_size)) {
    plan.warnings.push_back(fmt::format(
        "model.quantize_lm_head has no effect: the head's {} rows and {} columns on a rank are no "
        "multiples of 16",
        rows, plan.model.hidden_size));
  }
}

/// Warns users with GPUs whose job does not run on them.
void warn_of_gpus(const Config& config, JobPlan& plan, const PlanOptions& options) {
  if (!options.assumed_gpus && plan.computes_here && config.cluster.device == "auto" &&
      plan.engine.device == DeviceKind::cpu && gpu_part_is_here()) {
    const Result<int> gpus = count_gpus();
    plan.warnings.push_back(gpus.ok()
                                ? "the part for GPUs finds none that it runs on: the CPU computes"
                                : gpus.error().message + ": the CPU computes");
  }
}

/// Tells which kernels attention takes on GPUs, and warns of slow ones.
Result<void> tell_of_attention(JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  if (engine.device != DeviceKind::cuda) return {};
  std::vector<CacheSpec> told;
  for (std::int64_t layer = 0; layer < plan.model.layers; ++layer) {
    const CacheSpec spec = cache_spec_of(plan.model, layer);
    if (std::ranges::find(told, spec) != told.end()) continue;
    told.push_back(spec);
    TROUPE_TRY(const AttentionShape shape,
               attention_shape(plan.model, layer, head_shard(plan.model, plan.mesh, 0)));
    const GpuAttentionKernels kernels =
        gpu_attention_kernels(shape, engine.dtype, engine.kv_dtype(), engine.deterministic);
    const bool has_cascade =
        kernels.decode == GpuAttentionKernel::decode
            ? cascade_attention_takes(shape) && !engine.kv_codes
            : kernels.decode == GpuAttentionKernel::invariant && shape.window == 0;
    const bool cascades = has_cascade && engine.cascade_attention && engine.prefix_caching;
    std::string by = fmt::format(
        "{}: decode steps by {}{}, prompts by {}", describe(shape), to_string(kernels.decode),
        cascades ? " (cascade attention where requests share a prefix)" : "",
        to_string(kernels.prompts));
    if (kernels.long_prompts != kernels.prompts) {
      by += fmt::format(", long ones by {}", to_string(kernels.long_prompts));
    }
    plan.attention.push_back(std::move(by));
    if (!kernels.any_slow()) continue;
    plan.warnings.push_back(fmt::format(
        "attention of {} in {}{} is right but slow on GPUs in this version", describe(shape),
        to_string(engine.dtype), engine.deterministic ? " with engine.deterministic" : ""));
  }
  return {};
}

/// "the job begins with 1 of 3 step domains; ...", for a plan with places for nodes that join
/// later.
std::string describe_growth(const JobPlan& plan, std::size_t later) {
  const auto ranks = static_cast<std::size_t>(ranks_per_domain(plan.mesh));
  const auto domains = static_cast<std::size_t>(plan.mesh.step_domains());
  std::set<std::string> later_names;
  for (const NodeSpec& node : plan.cluster.nodes) {
    if (node.joins_later) later_names.insert(node.name);
  }
  std::size_t at_start = 0;
  for (std::size_t first = 0; first < plan.rank_nodes.size(); first += ranks) {
    const auto nodes = std::span(plan.rank_nodes).subspan(first, ranks);
    if (std::ranges::none_of(nodes, [&](const auto& node) { return later_names.contains(node); })) {
      ++at_start;
    }
  }
  return fmt::format(
      "the job begins with {} of {} step domains; the others serve when {} more node{} join{} "
      "({}{})",
      at_start, domains, later, later == 1 ? "" : "s", later == 1 ? "s" : "", *later_names.begin(),
      later == 1 ? "" : ", ...");
}

/// A checkpoint's headers and the mesh of its ranks, which fit each other.
struct ModelAndMesh {
  ModelConfig model;
  Checkpoint checkpoint;
  Mesh mesh;
};

/// True if matrices that are codes would become other codes. FP8 stays FP8.
bool would_round_twice(std::string_view asked, const QuantizationConfig& stored) {
  if (stored.describe().empty() || asked == "none" || asked == "int8" || asked == "w8a8") {
    return false;
  }
  const bool is_fp8 = std::ranges::all_of(
      stored.groups, [](const auto& group) { return group.scheme.coding == WeightCoding::fp8; });
  return asked != "fp8" || !is_fp8;
}

Result<ModelAndMesh> arrange(const Config& config) {
  auto model = load_model_config(config.model.path);
  if (!model.ok()) return about_key("model.path", std::move(model).error());
  auto checkpoint = Checkpoint::open(config.model.path, load_format(config), model->dtype);
  if (!checkpoint.ok()) return about_key("model.path", std::move(checkpoint).error());
  TROUPE_TRY(const Mesh mesh, plan_mesh(config, *model));
  auto checked = check_model(*model, *checkpoint, mesh);
  if (!checked.ok()) {
    return about_key(fmt::format("parallel sizes and {}", config.model.path),
                     std::move(checked).error());
  }
  if (would_round_twice(config.model.quantization, checkpoint->quantization())) {
    return fail(ErrorCode::invalid_argument,
                "model.quantization: the weights of {} are quantised already, and would be rounded "
                "twice: set it to none, to int8 for the head alone, to w8a8 for activations too, "
                "or take a checkpoint in bf16, f16 or f32",
                config.model.path);
  }
  auto scales = check_scales(*model, *checkpoint, weight_rules_of(*model));
  if (!scales.ok()) return about_key("model.path", std::move(scales).error());
  return ModelAndMesh{*std::move(model), *std::move(checkpoint), mesh};
}

}  // namespace

Result<void> check_arrangement(Config config) {
  config.cluster.hosts.clear();
  config.cluster.devices_per_node.reset();
  auto arranged = arrange(config);
  if (!arranged.ok()) return std::move(arranged).error();
  return {};
}

Result<JobPlan> plan_job(Config config, const PlanOptions& options) {
  JobPlan plan;
  plan.cores = usable_cpu_count();
  TROUPE_TRY(config.cluster.hosts, hosts_of(config));
  TROUPE_TRY(auto arranged, arrange(config));
  plan.model = std::move(arranged.model);
  plan.mesh = arranged.mesh;

  const int world = plan.mesh.world_size();
  plan.computes_here = computes_here(config);
  TROUPE_TRY(plan.cluster, cluster_of(config, world, plan.cores));
  TROUPE_TRY(const std::size_t later, add_later_nodes(config, plan.mesh, plan.cluster.nodes));
  auto placed = nodes_of_ranks(plan.mesh, plan.cluster.nodes);
  if (!placed.ok()) return about_key("cluster.devices_per_node", std::move(placed).error());
  plan.rank_nodes = *std::move(placed);
  if (later > 0) plan.warnings.push_back(describe_growth(plan, later));
  TROUPE_TRY(plan.engine, plan_engine(config, plan.model, plan.mesh, plan.cores,
                                      options.assumed_gpus, plan.computes_here));
  auto runs = check_attention(plan.model, plan.mesh, plan.engine);
  if (!runs.ok()) return about_key(config.model.path, std::move(runs).error());
  if (plan.engine.kv_codes) {
    TROUPE_TRY(plan.kv_codes, describe_kv_codes(plan.engine, plan.model));
  }
  warn_of_gpus(config, plan, options);
  warn_of_context_ranks(plan);
  warn_of_plain_head(plan);
  TROUPE_CHECK(tell_of_attention(plan));
  if (!options.assumed_gpus) warn_of_swap_space(plan);
  const int workers_here = devices_per_node(config, world);
  if (!options.assumed_gpus && plan.computes_here &&
      workers_here * plan.engine.threads_per_worker > plan.cores) {
    plan.warnings.push_back(
        fmt::format("{} workers of {} threads on {} cores will wait for each other", workers_here,
                    plan.engine.threads_per_worker, plan.cores));
  }
  TROUPE_TRY(plan.ranks, footprints(plan.model, arranged.checkpoint, plan.mesh, plan.engine));
  judge_memory(plan, options);
  // Find broken tokenizers and templates now, not when the executor starts.
  TROUPE_TRY(
      RequestPreprocessor preprocessor,
      RequestPreprocessor::load(config.model.path, plan.model, plan.engine.max_model_len, 0));
  if (const Error* problem = preprocessor.template_problem()) {
    plan.warnings.push_back(
        fmt::format("chats will be refused, completions will not: {}", problem->message));
  }
  if (options.keeps_preprocessor) {
    plan.preprocessor = std::make_shared<const RequestPreprocessor>(std::move(preprocessor));
  }
  plan.model_names = config.model.served_model_name;
  if (auto name = recorded_name(config.model.path)) plan.model_names.push_back(*std::move(name));
  plan.config = std::move(config);
  return plan;
}

Result<void> check_startable(const JobPlan& plan) {
  if (plan.problems.empty()) return {};
  return fail(ErrorCode::resource_exhausted, "{}", fmt::join(plan.problems, "\n"));
}

std::string describe(const JobPlan& plan) {
  std::string text = to_yaml(plan.config);
  const EngineSpec& engine = plan.engine;
  text += fmt::format("\n{}: {}, {} layers\n", plan.config.model.path, plan.model.architecture,
                      plan.model.layers);
  text += fmt::format("{} tokens of context, {} a step, {} KV blocks of {} tokens a replica\n",
                      engine.max_model_len, engine.max_num_batched_tokens, plan.kv_blocks,
                      engine.block_size);
  text += fmt::format("workers: {}, ", plan.mesh.world_size());
  if (plan.gpus.count > 0) {
    text += fmt::format("GPUs: {}{}", plan.gpus.count, plan.gpus.assumed ? " assumed" : "");
    if (plan.gpus.memory_bytes > 0) {
      text += fmt::format(", memory of each: {}", format_bytes(plan.gpus.memory_bytes));
    }
    text += "\n";
  } else {
    text += fmt::format("threads each: {}, cores: {}\n", engine.threads_per_worker, plan.cores);
  }
  if (!plan.kv_codes.empty()) text += fmt::format("KV cache in {}\n", plan.kv_codes);
  if (!engine.kv_policy.is_full()) {
    text += fmt::format("KV cache: {}\n", describe(engine.kv_policy));
  }
  for (const std::string& line : plan.attention) text += fmt::format("attention: {}\n", line);
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  return text + "\n" + mesh_table(plan.mesh, plan.ranks, plan.kv_blocks, plan.rank_nodes);
}

}  // namespace troupe
