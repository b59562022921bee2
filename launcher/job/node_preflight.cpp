#include "launcher/job/node_preflight.hpp"

#include <algorithm>

#include "runtime/process/open_files.hpp"
#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

/// Descriptors of a process that no other process of the job needs: its program's files, logs,
/// devices, shared memory.
constexpr std::uint64_t own_descriptors = 128;
/// Links and listeners between two processes, over all planes.
constexpr std::uint64_t descriptors_a_peer = 4;

constexpr const char* default_stage_folder = "~/.cache/troupe/checkpoints";

/// The place of a rank's node in the cluster's list, where one that joins gets another name later.
std::size_t node_of(const JobPlan& plan, std::size_t rank) {
  const auto& nodes = plan.cluster.nodes;
  const auto node = std::ranges::find(nodes, plan.rank_nodes[rank], &NodeSpec::name);
  return static_cast<std::size_t>(node - nodes.begin());
}

NodeNeeds most_of(const std::vector<NodeNeeds>& nodes) {
  NodeNeeds most;
  for (const NodeNeeds& need : nodes) {
    most.gpus = std::max(most.gpus, need.gpus);
    most.weight_bytes = std::max(most.weight_bytes, need.weight_bytes);
  }
  return most;
}

/// The error without the places of logs, which are removed with their folder.
Error without_logs(Error error, const std::string& folder) {
  const std::string hint = "; its log is " + folder;
  for (auto at = error.message.find(hint); at != error.message.npos;
       at = error.message.find(hint, at)) {
    const auto end = error.message.find_first_of(";:\n", at + hint.size());
    error.message.erase(at, end == error.message.npos ? end : end - at);
  }
  return error;
}

}  // namespace

bool has_preflight(const JobPlan& plan) { return plan.config.cluster.launch != "local"; }

PreflightNeeds preflight_needs(const JobPlan& plan) {
  PreflightNeeds needs;
  if (plan.engine.load_format != LoadFormat::dummy) {
    needs.checkpoints.push_back({.folder = plan.engine.model_path, .files = {}, .problem = {}});
    if (!plan.engine.draft_model_path.empty()) {
      needs.checkpoints.push_back(
          {.folder = plan.engine.draft_model_path, .files = {}, .problem = {}});
    }
  }
  const Config::Model& model = plan.config.model;
  if (model.stage == "copy") {
    needs.stage_folder = model.stage_folder == "auto" ? default_stage_folder : model.stage_folder;
  }
  const auto& nodes = plan.cluster.nodes;
  needs.nodes.resize(nodes.size());
  const bool on_gpu = plan.engine.device == DeviceKind::cuda;
  needs.leaves_gpus = !on_gpu && plan.config.cluster.device == "auto";
  for (std::size_t rank = 0; rank < plan.rank_nodes.size(); ++rank) {
    NodeNeeds& need = needs.nodes[node_of(plan, rank)];
    if (on_gpu) ++need.gpus;
    if (!on_gpu) need.weight_bytes += plan.ranks[rank].weight_bytes;
  }
  // A spare must be able to do what any of the others does.
  const NodeNeeds most = most_of(needs.nodes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].is_spare) needs.nodes[i] = most;
  }
  needs.open_files = own_descriptors + descriptors_a_peer * (plan.rank_nodes.size() + nodes.size());
  return needs;
}

Result<void> check_own_open_files(const JobPlan& plan) {
  const std::uint64_t needed = preflight_needs(plan).open_files;
  const std::uint64_t limit = open_file_limit();
  if (limit >= needed) return {};
  return fail(
      ErrorCode::resource_exhausted,
      "the launcher may have {} open files, but needs up to {} for {} nodes: raise the hard "
      "limit here (ulimit -Hn {})",
      limit, needed, plan.cluster.nodes.size(), needed);
}

JobHosts job_hosts(const JobPlan& plan, const PreflightReport& report) {
  JobHosts hosts;
  for (const ProbedNode& node : report.nodes) {
    hosts.hosts.push_back({node.name, node.address, {}});
    for (const auto& link : node.links) {
      hosts.links.push_back({node.name, link.to, link.facts.seconds, link.facts.bytes_per_second});
    }
  }
  for (std::size_t rank = 0; rank < plan.rank_nodes.size(); ++rank) {
    const std::size_t node = node_of(plan, rank);
    if (node >= hosts.hosts.size()) continue;  // it joins later
    hosts.hosts[node].ranks.push_back(static_cast<int>(rank));
  }
  return hosts;
}

Result<PreflightReport> look_at_nodes(const JobPlan& plan) {
  TROUPE_TRY(const TemporaryFolder logs, TemporaryFolder::create("check"));
  ClusterOptions options = plan.cluster;
  options.log_folder = logs.path().string();
  options.log_level = log::Level::warning;
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) return without_logs(std::move(cluster).error(), logs.path().string());
  return Preflight(preflight_needs(plan)).finish(**cluster);
}

}  // namespace troupe
