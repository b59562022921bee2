#include "actors/worker/startup/worker_groups.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "models/ops/device/device.hpp"

namespace troupe {
namespace {

/// Tensor ranks do the same work at the same time, and so do context ranks.
constexpr std::chrono::milliseconds tensor_timeout = std::chrono::seconds(30);
/// A stage waits as long as the previous one computes, and so do the ranks that wait for it.
/// Supervision notices dead ranks, not this timeout.
constexpr std::chrono::milliseconds step_timeout = std::chrono::minutes(10);

Result<std::shared_ptr<Collectives>> formed_group(const WorkerGroups::Find& find,
                                                  const char* name) {
  auto formed = find(name);
  if (formed) return formed;
  return fail(ErrorCode::invalid_argument, "the workers have not formed their {} group", name);
}

}  // namespace

WorkerGroups::WorkerGroups(const Mesh& mesh, const WorkerSpec& spec) : mesh_(mesh), spec_(spec) {
  tensor_.ranks = mesh.group(MeshDimension::tensor, spec.rank);
  context_.ranks = mesh.group(MeshDimension::context, spec.rank);
  pipeline_.ranks = mesh.group(MeshDimension::pipeline, spec.rank);
  if (spec.expert_parallel_size > 1) experts_.ranks = mesh.dispatch_group(spec.rank);
  // Usually experts are spread over the same ranks: one group serves both.
  if (mesh.data_parallel_attention() && mesh.dense_group(spec.rank) != experts_.ranks) {
    dense_.ranks = mesh.dense_group(spec.rank);
  }
}

Result<std::vector<CommunicatorSpec>> WorkerGroups::communicators(const WorkerSpec& spec,
                                                                  std::size_t stage_bytes) {
  TROUPE_TRY(const Mesh mesh, mesh_of(spec));
  if (spec.collectives != "shm" && spec.collectives != "network") {
    return fail(ErrorCode::unsupported, "collectives \"{}\": expected shm or network",
                spec.collectives);
  }
  // The replicas of a domain are consecutive.
  const int in_domain = mesh.replicas_per_domain() * (mesh.world_size() / mesh.shape().data);
  const int first = spec.rank - spec.rank % in_domain;
  const WorkerGroups groups(mesh, spec);
  std::vector<CommunicatorSpec> communicators;
  for (const Group* group : groups.all()) {
    if (group->ranks.size() < 2) continue;
    const bool computes_alike = group == &groups.tensor_ || group == &groups.context_;
    CommunicatorSpec one{.name = group->name,
                         .ranks = group->ranks,
                         .shares_memory = spec.collectives == "shm",
                         .timeout = computes_alike ? tensor_timeout : step_timeout};
    for (int& rank : one.ranks) rank -= first;
    // A stage can be two passes ahead of the next one.
    if (group == &groups.pipeline_) {
      one.mailbox_bytes = std::max(default_mailbox_bytes, 3 * stage_bytes);
    }
    communicators.push_back(std::move(one));
  }
  return communicators;
}

Result<std::unique_ptr<WorkerGroups>> WorkerGroups::create(const WorkerSpec& spec, const Find& find,
                                                           SpanRecorder& recorder) {
  TROUPE_TRY(const Mesh mesh, mesh_of(spec));
  std::unique_ptr<WorkerGroups> groups(new WorkerGroups(mesh, spec));
  for (Group* group : groups->all()) {
    if (group->ranks.size() < 2) continue;
    TROUPE_TRY(auto formed, formed_group(find, group->name));
    const SpanKind kind = group == &groups->pipeline_ ? SpanKind::stage : SpanKind::exchange;
    group->collectives = std::make_unique<TimedCollectives>(std::move(formed), recorder, kind,
                                                            group->name, group->ranks);
  }
  return groups;
}

Result<void> WorkerGroups::rejoin(const Find& find, std::vector<std::string> nodes) {
  spec_.nodes = std::move(nodes);
  for (Group* group : all()) {
    if (!group->collectives) continue;
    TROUPE_TRY(auto formed, formed_group(find, group->name));
    group->collectives->replace(std::move(formed));
  }
  return {};
}

Result<void> WorkerGroups::join_devices(Ops& ops) {
  for (Group* group : all()) {
    if (!group->collectives) continue;
    const bool on_one_node = ranks_here(spec_, group->ranks).size() == group->ranks.size();
    TROUPE_TRY(std::shared_ptr<Collectives> joined,
               join_ranks(ops, *group->collectives, {group->name, on_one_node}));
    if (group->on_device) {
      group->on_device->replace(std::move(joined));
    } else {
      group->on_device = std::make_unique<ReplaceableCollectives>(std::move(joined));
    }
  }
  // They connect concurrently and are awaited one after another.
  for (Group* group : all()) {
    if (group->on_device) TROUPE_CHECK(group->on_device->barrier());
  }
  for (Group* group : all()) {
    if (group->on_device) TROUPE_CHECK(group->on_device->reopen());
  }
  return {};
}

void WorkerGroups::leave_devices() {
  for (Group* group : all()) {
    if (group->on_device) group->on_device->release();
  }
}

ParallelContext WorkerGroups::context() const {
  const auto of = [](const Group& group) {
    Collectives* const host = group.collectives.get();
    return RankGroup(host, group.on_device ? group.on_device.get() : host);
  };
  return {.mesh = mesh_,
          .rank = spec_.rank,
          .sequence_parallel = spec_.sequence_parallel,
          .tensor = of(tensor_),
          .context = of(context_),
          .pipeline = of(pipeline_),
          .experts = of(experts_),
          .dense = of(mesh_.data_parallel_attention() && dense_.ranks.empty() ? experts_ : dense_)};
}

std::vector<CollectiveState> WorkerGroups::states() const {
  std::vector<CollectiveState> states;
  for (const Group* group : all()) {
    if (group->collectives) states.push_back(group->collectives->state());
  }
  return states;
}

void WorkerGroups::abort() {
  for (Group* group : all()) {
    if (group->on_device) group->on_device->abort();
    if (group->collectives) group->collectives->abort();
  }
}

}  // namespace troupe
