#include "launcher/job/topology.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "actors/driver/rank_placement.hpp"
#include "launcher/job/cluster_nodes.hpp"
#include "launcher/job/plan_engine.hpp"
#include "models/layers/model_limits.hpp"
#include "models/model/stages.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {
namespace {

constexpr std::string_view tensor_key = "parallel.tensor_parallel_size";
constexpr std::string_view pipeline_key = "parallel.pipeline_parallel_size";
constexpr std::string_view expert_key = "parallel.expert_parallel_size";
constexpr std::string_view shared_key = "parallel.data_parallel_attention";

/// The result, its error prefixed with the YAML key that the user can change and followed by the
/// model.
template <class T>
Result<void> about(std::string_view key, const Config& config, const Result<T>& result) {
  if (result.ok()) return {};
  const Error& error = result.error();
  return Error{error.code, fmt::format("{}: {} ({})", key, error.message, config.model.path)};
}

bool has_dense_layers(const ModelConfig& model) {
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.is_sparse(layer)) return true;
  }
  return false;
}

Result<void> check_tensor_size(const MeshShape& shape, const ModelConfig& model) {
  const ShardOf shard{0, shape.tensor};
  TROUPE_TRY([[maybe_unused]] const Slice heads, even_slice("attention heads", model.heads, shard));
  TROUPE_TRY([[maybe_unused]] const Slice kv_heads, kv_head_slice(model.kv_heads, shard));
  TROUPE_TRY([[maybe_unused]] const int head_segments,
             segments_per_rank("attention heads", model.heads, shape.tensor));
  if (!has_dense_layers(model)) return {};
  TROUPE_TRY([[maybe_unused]] const int inner_segments,
             segments_per_rank("intermediate_size", model.intermediate_size, shape.tensor));
  return {};
}

/// Refuses what replicas that share dense layers cannot share, or not beside what else is set.
Result<void> check_shared_layers(const Config& config, const MeshShape& shape,
                                 const ModelConfig& model, int expert_ranks) {
  if (!config.parallel.data_parallel_attention) return {};
  if (shape.data == 1) {
    return fail(ErrorCode::invalid_argument,
                "it is for several replicas, but parallel.data_parallel_size is 1: raise it, or "
                "leave this out");
  }
  if (shape.context > 1 || config.parallel.sequence_parallel) {
    return fail(ErrorCode::invalid_argument,
                "replicas that share dense layers gather whole rows: set {}",
                shape.context > 1 ? "parallel.context_parallel_size: 1"
                                  : "parallel.sequence_parallel: false");
  }
  TROUPE_TRY(const Mesh mesh, Mesh::create(shape, expert_ranks, true));
  const auto check = [&](std::string_view what, std::int64_t extent) -> Result<void> {
    const int segments = row_parallel_segments(extent);
    if (segments % mesh.dense_size() == 0) return {};
    return fail(ErrorCode::invalid_argument,
                "{} replicas of {} tensor ranks share each matrix, which do not divide the {} "
                "segments of {} {} that keep results the same in every arrangement",
                mesh.replicas_per_domain(), shape.tensor, segments, what, extent);
  };
  if (has_dense_layers(model)) TROUPE_CHECK(check("intermediate_size", model.intermediate_size));
  if (!model.moe || model.moe->shared_intermediate_size == 0) return {};
  return check("the shared experts' inner size", model.moe->shared_intermediate_size);
}

Result<void> check_experts(const Mesh& mesh, const ModelConfig& model) {
  const int expert_ranks = mesh.expert_parallel_size();
  if (!model.moe) {
    if (expert_ranks == 1) return {};
    return fail(ErrorCode::invalid_argument, "{} ranks for experts, but the model has none",
                expert_ranks);
  }
  TROUPE_CHECK(
      check_divides("expert_parallel_size", expert_ranks, "the experts", model.moe->experts));
  const int parts = mesh.expert_place(0).split_count;
  const int segments = row_parallel_segments(model.moe->intermediate_size);
  if (segments % parts == 0) return {};
  return fail(ErrorCode::invalid_argument,
              "{} ranks for experts of {} tensor ranks split each expert in {}, which does not "
              "divide the {} segments of moe_intermediate_size {}",
              expert_ranks, mesh.shape().tensor, parts, segments, model.moe->intermediate_size);
}

/// True for elastic jobs over hosts: these may begin with fewer nodes than their replicas need.
bool may_begin_with_fewer_nodes(const Config& config) {
  return config.cluster.elastic && config.cluster.launch != "local";
}

Result<void> check_devices(const Config& config, const MeshShape& shape) {
  if (may_begin_with_fewer_nodes(config)) return {};  // see add_later_nodes
  const std::int64_t world = shape.world_size();
  const int nodes = node_count(config);
  const std::int64_t room = std::int64_t{nodes} * devices_per_node(config, shape.world_size());
  if (world <= room) return {};
  return fail(ErrorCode::invalid_argument,
              "cluster.devices_per_node: {} replicas of {} stages of {} workers are {} workers, "
              "but {} {}",
              shape.data, shape.pipeline, shape.context * shape.tensor, world,
              nodes == 1 ? std::string("the node takes") : fmt::format("{} nodes take", nodes),
              room);
}

}  // namespace

Result<std::size_t> add_later_nodes(const Config& config, const Mesh& mesh,
                                    std::vector<NodeSpec>& nodes) {
  if (!may_begin_with_fewer_nodes(config)) return 0;
  auto placed = place_ranks(mesh, nodes);
  if (placed.ok()) return 0;
  if (config.cluster.spares > 0) {
    return fail(ErrorCode::invalid_argument,
                "cluster.spares: the job's replicas need more nodes than there are, so none is to "
                "spare: set it to 0, or name more nodes");
  }
  const std::size_t at_start = nodes.size();
  const auto is_of_the_start = [&](int node) { return std::cmp_less(node, at_start); };
  // A worker takes a device, so this many are enough.
  while (!placed.ok() && std::cmp_less(nodes.size(), at_start + mesh.world_size())) {
    nodes.push_back({.name = fmt::format("later-{}", nodes.size() - at_start + 1),
                     .cpus = nodes.front().cpus,
                     .devices = nodes.front().devices,
                     .joins_later = true});
    placed = place_ranks(mesh, nodes);
  }
  if (!placed.ok()) return about_key("cluster.devices_per_node", std::move(placed).error());
  const auto first = std::span(*placed).first(static_cast<std::size_t>(ranks_per_domain(mesh)));
  if (std::ranges::all_of(first, is_of_the_start)) return nodes.size() - at_start;
  return fail(ErrorCode::invalid_argument,
              "cluster.devices_per_node: an elastic job begins with one of its {} step domains at "
              "least, which is {} workers, but {}",
              mesh.step_domains(), ranks_per_domain(mesh),
              at_start == 1 ? fmt::format("the node takes {}", nodes.front().devices.size())
                            : fmt::format("the {} nodes at the start take {} each", at_start,
                                          nodes.front().devices.size()));
}

int auto_expert_parallel_size(const MeshShape& shape, const ModelConfig& model,
                              bool over_replicas) {
  if (!model.moe) return 1;
  const std::int64_t experts = model.moe->experts;
  if (!over_replicas || experts % shape.tensor != 0) {
    return static_cast<int>(std::gcd(std::int64_t{shape.tensor}, experts));
  }
  return static_cast<int>(shape.tensor *
                          std::gcd(std::int64_t{shape.data}, experts / shape.tensor));
}

Result<Mesh> plan_mesh(const Config& config, const ModelConfig& model) {
  const auto& sizes = config.parallel;
  const MeshShape shape{.data = static_cast<int>(sizes.data_parallel_size),
                        .pipeline = static_cast<int>(sizes.pipeline_parallel_size),
                        .context = static_cast<int>(sizes.context_parallel_size),
                        .tensor = static_cast<int>(sizes.tensor_parallel_size)};
  TROUPE_CHECK(about(tensor_key, config, check_tensor_size(shape, model)));
  TROUPE_CHECK(about(pipeline_key, config, stage_layers(model, shape.pipeline)));
  const int expert_ranks = static_cast<int>(sizes.expert_parallel_size.value_or(
      auto_expert_parallel_size(shape, model, sizes.data_parallel_attention)));
  TROUPE_CHECK(about(expert_key, config, Mesh::create(shape, expert_ranks)));
  TROUPE_CHECK(about(shared_key, config, check_shared_layers(config, shape, model, expert_ranks)));
  auto mesh = Mesh::create(shape, expert_ranks, sizes.data_parallel_attention);
  TROUPE_CHECK(about(expert_key, config, check_experts(*mesh, model)));
  TROUPE_CHECK(check_devices(config, shape));
  return mesh;
}

Result<void> check_deterministic_gpus(const Mesh& mesh, const ModelConfig& model, DType dtype) {
  const int tensor = mesh.shape().tensor;
  const auto refuse = [](const std::string& why) {
    return fail(ErrorCode::unsupported,
                "engine.deterministic: true on GPUs {}; or leave it at auto, or set "
                "cluster.device: cpu",
                why);
  };
  if (dtype != DType::bf16) return refuse("is for bfloat16: set model.dtype: bfloat16");
  if (max_exact_segments % tensor != 0) {
    return refuse(fmt::format("takes {} 1, 2 or 4, not {}", tensor_key, tensor));
  }
  if (max_exact_segments % mesh.dense_size() != 0) {
    return refuse(fmt::format("takes {} with 4 ranks that share each matrix at most, not {}",
                              shared_key, mesh.dense_size()));
  }
  if (model.moe && mesh.expert_place(0).split_count > 1) {
    return refuse(fmt::format("takes whole experts: set {}: {}", expert_key, tensor));
  }
  return {};
}

}  // namespace troupe
